// STEP frames as an engine makes them, and as it should not.
#pragma once

#include <stdbool.h>

#include "buffer.h"
#include "chance.h"

// A request as the engine knows it.
struct stream {
  uint64_t id;
  int interface;
  uint32_t tokens;  // that were made
  bool ended;
};

// Appends the body of a step for these requests, which may end; the tokens of each are 0, 1, 2, ...
void frames_step(struct buffer *body, struct chance *chance, struct stream *streams, uint32_t count);

// Makes it one that an engine never sends: bytes are changed, cut off or put in.
void frames_spoil(struct buffer *body, struct chance *chance);

// Whether this is a REQUEST frame whose every length is right.
bool frames_is_request(const uint8_t *frame, size_t size);
