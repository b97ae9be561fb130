// Bytes that grow at their end.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer {
  uint8_t *data;
  size_t length;
  size_t capacity;
};

// Makes room for `more` bytes after the end, and returns where they go. Aborts when memory runs out.
uint8_t *buffer_reserve(struct buffer *buffer, size_t more);
void buffer_append(struct buffer *buffer, const void *data, size_t size);
void buffer_append_u8(struct buffer *buffer, uint8_t value);
void buffer_append_u16(struct buffer *buffer, uint16_t value);
void buffer_append_u32(struct buffer *buffer, uint32_t value);
void buffer_append_u64(struct buffer *buffer, uint64_t value);
void buffer_drop_front(struct buffer *buffer, size_t size);
void buffer_free(struct buffer *buffer);
