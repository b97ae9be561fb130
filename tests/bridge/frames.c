#include "frames.h"

#include <string.h>

#include "constants.h"

enum { LENGTH = 2 };  // a finish reason

static void append_tensor(struct buffer *body, struct chance *chance) {
  static const char *const names[] = {"output_ids", "text_output", "logprobs", "nobody asked for it", ""};
  const char *name = names[chance_below(chance, 5)];
  uint8_t data[64] = {0};
  uint32_t size = chance_below(chance, sizeof data);
  buffer_append_u8(body, (uint8_t)strlen(name));
  buffer_append(body, name, strlen(name));
  buffer_append_u8(body, 13);
  buffer_append_u8(body, chance_one_in(chance, 50) ? 2 : 1);
  buffer_append_u64(body, 1);
  buffer_append_u32(body, chance_one_in(chance, 50) ? UINT32_MAX : size);
  buffer_append(body, data, size);
}

static void append_output(struct buffer *body, struct chance *chance, struct stream *stream) {
  bool is_text = stream->interface != INTERFACE_TOKENS, fails = chance_one_in(chance, 60);
  stream->ended = fails || chance_one_in(chance, 12);
  int finish = fails ? ERROR_FINISH : (stream->ended ? LENGTH : NOT_FINISHED) + (is_text ? TEXT_FINISH : 0);
  uint8_t extras = is_text || fails ? 0 : (uint8_t)(chance_one_in(chance, 4) * CACHED_TOKENS + chance_one_in(chance, 4) * LOG_PROBS);
  struct buffer data = {0};
  uint32_t count = 0;
  if (fails) {
    buffer_append(&data, "E2405 EngineInternalError: by chance", 36);
    count = 36;
  } else if (stream->interface == INTERFACE_VLLM) {
    for (uint32_t tensors = chance_below(chance, 4); tensors > 0; tensors--) append_tensor(&data, chance);
    count = (uint32_t)data.length;
  } else {
    for (count = 0; count < 30 && !chance_one_in(chance, 4); count++) {
      uint32_t token = stream->tokens++;
      if (is_text) buffer_append_u8(&data, (uint8_t)('a' + token % 26));
      if (!is_text) buffer_append_u32(&data, token);
    }
  }
  buffer_append_u64(body, stream->id);
  buffer_append_u8(body, (uint8_t)finish);
  buffer_append_u8(body, extras);
  buffer_append_u32(body, count);
  buffer_append(body, data.data, data.length);
  buffer_free(&data);
  if (extras & CACHED_TOKENS) buffer_append_u32(body, 7);
  if (extras & LOG_PROBS) {
    uint8_t alternatives = (uint8_t)chance_below(chance, 4), zeros[30 * (4 + 3 * 8)] = {0};
    buffer_append_u8(body, alternatives);
    buffer_append(body, zeros, count * (4u + alternatives * 8u));
  }
}

void frames_step(struct buffer *body, struct chance *chance, struct stream *streams, uint32_t count) {
  size_t at = body->length;
  uint32_t outputs = 0;
  buffer_append_u32(body, 0);
  for (uint32_t i = 0; i < count; i++) {
    if (streams[i].ended || chance_one_in(chance, 3)) continue;
    append_output(body, chance, &streams[i]);
    outputs++;
  }
  if (chance_one_in(chance, 8)) {  // for one that nobody waits for any more
    struct stream gone = {chance_next(chance) >> chance_below(chance, 64), INTERFACE_TOKENS, 0, false};
    append_output(body, chance, &gone);
    outputs++;
  }
  memcpy(body->data + at, &outputs, sizeof outputs);
}

void frames_spoil(struct buffer *body, struct chance *chance) {
  static const uint32_t odd[] = {0, 1, 0x7FFFFFFF, 0x80000000, UINT32_MAX, 1 << 24, 0x3FFFFFFF, 0x40000000};
  for (uint32_t times = 1 + chance_below(chance, 3); times > 0; times--) {
    uint32_t length = (uint32_t)body->length, at = length ? chance_below(chance, length) : 0;
    switch (chance_below(chance, 5)) {
      case 0:
        body->length = at;
        break;
      case 1:
        buffer_append(body, &odd[chance_below(chance, 8)], 1 + chance_below(chance, 4));
        break;
      case 2:
        if (length >= 4) memcpy(body->data + chance_below(chance, length - 3), &odd[chance_below(chance, 8)], 4);
        break;
      case 3:
        if (length > 0) body->data[at] ^= (uint8_t)(1u << chance_below(chance, 8));
        break;
      default:
        if (length > 0) body->data[at] = (uint8_t)chance_next(chance);
    }
  }
}

bool frames_is_request(const uint8_t *frame, size_t size) {
  const uint8_t *at = frame + 14, *end = frame + size;  // behind the length, the type, the id and the interface
  uint32_t length;
  uint16_t id, inputs;
  if (size < 18 || frame[4] != FRAME_REQUEST || frame[13] > INTERFACE_VLLM) return false;
  memcpy(&length, frame, 4);
  memcpy(&id, at, 2);
  at += 2;
  if (length != size - 4 || end - at < id + 2) return false;
  at += id;
  memcpy(&inputs, at, 2);
  for (at += 2; inputs > 0; inputs--) {
    if (end - at < 1 || end - at < at[0] + 3) return false;
    at += 1 + at[0];  // the name
    size_t shape = 8 * (size_t)at[1];
    if ((size_t)(end - at) < 2 + shape + 4) return false;
    at += 2 + shape;
    memcpy(&length, at, 4);
    at += 4;
    if ((size_t)(end - at) < length) return false;
    at += length;
  }
  return at == end;
}
