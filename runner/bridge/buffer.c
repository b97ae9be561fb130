#include "buffer.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are written as the machine holds them");

uint8_t *buffer_reserve(struct buffer *buffer, size_t more) {
  if (buffer->capacity - buffer->length < more) {
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->length < more) capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL) abort();
    buffer->data = data;
    buffer->capacity = capacity;
  }
  return buffer->data + buffer->length;
}

void buffer_append(struct buffer *buffer, const void *data, size_t size) {
  if (size == 0) return;
  memcpy(buffer_reserve(buffer, size), data, size);
  buffer->length += size;
}

void buffer_append_u8(struct buffer *buffer, uint8_t value) { buffer_append(buffer, &value, sizeof value); }
void buffer_append_u16(struct buffer *buffer, uint16_t value) { buffer_append(buffer, &value, sizeof value); }
void buffer_append_u32(struct buffer *buffer, uint32_t value) { buffer_append(buffer, &value, sizeof value); }
void buffer_append_u64(struct buffer *buffer, uint64_t value) { buffer_append(buffer, &value, sizeof value); }

void buffer_drop_front(struct buffer *buffer, size_t size) {
  buffer->length -= size;
  if (buffer->length > 0) memmove(buffer->data, buffer->data + size, buffer->length);
}

void buffer_free(struct buffer *buffer) {
  free(buffer->data);
  *buffer = (struct buffer){0};
}
