#include "hostile_engine.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chance.h"
#include "constants.h"
#include "frames.h"
#include "triton_stand_in.h"

enum { SOCKET = 3, MAX_STREAMS = 256 };

struct state {
  struct chance chance;
  struct buffer in;
  struct stream streams[MAX_STREAMS];
  uint32_t count;
};

static void send_bytes(const void *data, size_t size) {
  for (size_t sent = 0; sent < size;) {
    ssize_t more = send(SOCKET, (const uint8_t *)data + sent, size - sent, MSG_NOSIGNAL);
    if (more <= 0) exit(0);
    sent += (size_t)more;
  }
}

static void send_frame(uint8_t type, const struct buffer *body) {
  struct buffer frame = {0};
  buffer_append_u32(&frame, (uint32_t)(1 + body->length));
  buffer_append_u8(&frame, type);
  buffer_append(&frame, body->data, body->length);
  send_bytes(frame.data, frame.length);
  buffer_free(&frame);
}

static void send_noise(struct chance *chance) {
  struct buffer noise = {0};
  for (uint32_t i = 1 + chance_below(chance, 2000); i > 0; i--) buffer_append_u8(&noise, (uint8_t)chance_next(chance));
  uint32_t length = chance_one_in(chance, 2) ? (uint32_t)noise.length : 1u << (26 + chance_below(chance, 3));
  static const uint8_t types[] = {FRAME_STEP, FRAME_STATISTICS, FRAME_READY, FRAME_START_FAILED, FRAME_REQUEST, 0};
  send_bytes(&length, sizeof length);
  send_bytes(&types[chance_below(chance, sizeof types)], 1);
  send_bytes(noise.data, noise.length);
  buffer_free(&noise);
}

static void begin(struct state *state, bool fails) {
  struct buffer body = {0};
  uint32_t how = fails ? chance_below(&state->chance, 4) : 4;
  if (how == 0) exit(7);
  if (how == 1) pause();
  buffer_append_u32(&body, how == 2 ? PROTOCOL_VERSION + 1 : PROTOCOL_VERSION);
  buffer_append(&body, "{}", 2);
  send_frame(how == 3 ? FRAME_START_FAILED : FRAME_READY, &body);
  buffer_free(&body);
}

static void take_frames(struct state *state) {
  uint32_t length;
  while (state->in.length >= 4) {
    const uint8_t *frame = state->in.data;
    memcpy(&length, frame, 4);
    if (state->in.length - 4 < length) return;
    uint64_t id;
    if (frame[4] == FRAME_SHUTDOWN) exit(0);
    if (frame[4] == FRAME_REQUEST && !frames_is_request(frame, 4 + (size_t)length)) wrong("a REQUEST cannot be read");
    memcpy(&id, frame + 5, 8);
    if (frame[4] == FRAME_REQUEST && state->count < MAX_STREAMS) {
      state->streams[state->count++] = (struct stream){.id = id, .interface = frame[13]};
    } else if (frame[4] == FRAME_CANCEL && length == 9) {
      for (uint32_t i = 0; i < state->count; i++) state->streams[i].ended |= state->streams[i].id == id;
    } else if (frame[4] != FRAME_REQUEST) {
      wrong("the bridge sends a frame of type %d", frame[4]);
    }
    buffer_drop_front(&state->in, 4 + (size_t)length);
  }
}

static void step(struct state *state, enum behaviour behaviour) {
  struct chance *chance = &state->chance;
  struct buffer body = {0};
  frames_step(&body, chance, state->streams, state->count);
  if (behaviour == SPOILS_FRAMES && chance_one_in(chance, 10)) frames_spoil(&body, chance);
  send_frame(FRAME_STEP, &body);
  buffer_free(&body);
  if (chance_one_in(chance, 10)) {
    uint8_t statistics[4 * STATISTICS_COUNT] = {(uint8_t)chance_next(chance)};
    struct buffer told = {statistics, sizeof statistics, 0};
    send_frame(FRAME_STATISTICS, &told);
  }
  if (behaviour == SENDS_NOISE && chance_one_in(chance, 20)) send_noise(chance);
  if (behaviour == DIES && chance_one_in(chance, 20)) {
    if (chance_one_in(chance, 2)) kill(getpid(), SIGKILL);
    exit(3);
  }
  if (behaviour == LEAVES_A_CHILD && chance_one_in(chance, 20)) {
    if (fork() == 0) pause();
    exit(0);
  }
  if (behaviour == LETS_GO && chance_one_in(chance, 20)) {
    close(SOCKET);
    pause();
  }
}

int engine_main(unsigned long long life) {
  enum behaviour behaviour = life % BEHAVIOURS;
  static struct state state;
  state.chance = chance_of(life + (uint64_t)getpid());
  begin(&state, behaviour == NEVER_READY);
  while (behaviour == TAKES_NOTHING) pause();
  while (true) {
    struct pollfd socket = {.fd = SOCKET, .events = POLLIN};
    bool busy = false;
    for (uint32_t i = 0; i < state.count; i++) busy |= !state.streams[i].ended;
    poll(&socket, 1, busy ? (int)chance_below(&state.chance, 3) : -1);
    if (socket.revents) {
      ssize_t size = recv(SOCKET, buffer_reserve(&state.in, 1 << 16), 1 << 16, 0);
      if (size <= 0) return 0;
      state.in.length += (size_t)size;
      take_frames(&state);
    }
    step(&state, behaviour);
  }
}
