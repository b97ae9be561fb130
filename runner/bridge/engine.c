// The engine's thread: frames from and to the process, requests from Triton, and the time.

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "constants.h"
#include "engine_internal.h"
#include "triton.h"

#define BUSY_CHECK (10 * MILLISECOND)  // how soon a cancelled request is noticed
#define IDLE_CHECK SECOND              // how soon the end of a process that left its socket open is noticed
#define STATISTICS_PAUSE SECOND        // how soon the number of requests is told again
#define HOLD_CHECK (2 * MILLISECOND)   // how soon held output is sent
#define WRITE_PATIENCE (30 * SECOND)   // an engine that accepts nothing for this long is as good as dead

enum { LARGEST_FRAME = 1 << 26, OWN_FILES = 3, CODE_LENGTH = 5 };
enum { MAX_WAITING = 1 << 26 };  // bytes of requests that the engine process has not taken

// ---- frames

// What a process says is a sentence; here it becomes a part of one.
static void drop_full_stop(char *text) {
  size_t length = strlen(text);
  if (length > 0 && text[length - 1] == '.') text[length - 1] = '\0';
}

static bool is_error(const char *text, const char *error) { return strncmp(text, error, CODE_LENGTH) == 0; }

static void tell_statistics(struct engine *engine) {
  feeds_tell_statistics(&engine->delivery.feeds, engine->delivery.requests.count, engine->statistics,
                        sizeof engine->statistics);
}

// Acts on one frame; returns why the process must end, or NULL.
static const char *take_frame(struct engine *engine, int type, const uint8_t *body, size_t size) {
  static const char unreadable[] = "it sent a frame that cannot be read";
  switch (type) {
    case FRAME_READY: {
      uint32_t version;
      if (!engine->loading || size < sizeof version) return unreadable;
      memcpy(&version, body, sizeof version);
      if (version != PROTOCOL_VERSION) return "it comes from another version of cog-triton";
      engine->declaration.length = 0;
      buffer_append(&engine->declaration, body + sizeof version, size - sizeof version);
      engine->loading = false;
      LOG(TRITONSERVER_LOG_INFO, "engine process %d is ready", (int)engine->process.pid);
      set_state(engine, STATE_READY);
      return NULL;
    }
    case FRAME_START_FAILED:
      snprintf(engine->told, TEXT_SIZE, "%.*s", (int)size, (const char *)body);
      if (engine->loading) memcpy(engine->start_error, engine->told, TEXT_SIZE);
      engine->misses_hosts = engine->loading && is_error(engine->told, E2408_HOSTS_MISSING);
      drop_full_stop(engine->told);
      return engine->told;
    case FRAME_STATISTICS:
      if (size != sizeof engine->statistics) return unreadable;
      memcpy(engine->statistics, body, size);
      tell_statistics(engine);  // at once: the process has a pace of its own
      return NULL;
    case FRAME_STEP:
      return delivery_take_step(&engine->delivery, body, size) ? NULL : unreadable;
    default:
      return unreadable;
  }
}

// Acts on the whole frames of `in`; returns why the process must end, or NULL.
static const char *take_frames(struct engine *engine) {
  size_t at = 0;
  const char *reason = NULL;
  while (reason == NULL && engine->in.length - at > sizeof(uint32_t)) {
    uint32_t length;
    memcpy(&length, engine->in.data + at, sizeof length);
    if (length < 1 || length > LARGEST_FRAME) return "it sent a frame of an impossible length";
    if (engine->in.length - at - sizeof length < length) break;
    const uint8_t *frame = engine->in.data + at + sizeof length;
    reason = take_frame(engine, frame[0], frame + 1, length - 1);
    at += sizeof length + length;
  }
  buffer_drop_front(&engine->in, at);
  return reason;
}

static void read_process(struct engine *engine) {
  uint8_t *place = buffer_reserve(&engine->in, READ_SIZE);
  ssize_t size = recv(engine->process.socket, place, READ_SIZE, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    process_died(engine, NULL);
    return;
  }
  engine->in.length += (size_t)size;
  const char *reason = take_frames(engine);
  if (reason != NULL) {
    process_died(engine, reason);
  } else {
    delivery_send(&engine->delivery, size == READ_SIZE);
  }
}

static void write_process(struct engine *engine) {
  ssize_t size = send(engine->process.socket, engine->out.data, engine->out.length, MSG_NOSIGNAL);
  if (size > 0) {
    buffer_drop_front(&engine->out, (size_t)size);
    engine->write_by = 0;
  }
  // It is full; or it has ended, which reading will show.
  if (engine->out.length > 0 && engine->write_by == 0) engine->write_by = now_ns() + WRITE_PATIENCE;
}

// ---- the thread

static void hand_over(struct engine *engine, struct request *request) {
  if (!delivery_admit(&engine->delivery, request)) return;
  if (engine->state != STATE_READY) {
    delivery_fail(request, engine->state == STATE_GIVEN_UP ? E2402_ENGINE_GAVE_UP : E2401_ENGINE_NOT_READY);
    return;
  }
  table_add(&engine->delivery.requests, request);
  memcpy(request->frame.data + REQUEST_ID_AT, &request->id, sizeof request->id);
  buffer_append(&engine->out, request->frame.data, request->frame.length);
  buffer_free(&request->frame);
}

static void take_queue(struct engine *engine) {
  struct submission *given_back;
  struct request *request = queue_take(&engine->queue, &given_back, &engine->stopped);
  while (request != NULL) {
    struct request *next = request->next;
    hand_over(engine, request);
    request = next;
  }
  submissions_take_back(&engine->delivery.submissions, given_back);
}

static uint64_t check_interval(const struct engine *engine) {
  if (engine->delivery.holds) return HOLD_CHECK;
  return engine->delivery.requests.count > 0 ? BUSY_CHECK : IDLE_CHECK;
}

static void wait_for_something(struct engine *engine) {
  uint64_t now = now_ns(), until = engine->checked + check_interval(engine);
  if (engine->state == STATE_RESTARTING && engine->process.pid == 0 && engine->restart_at < until) {
    until = engine->restart_at;
  }
  if (engine->loading && engine->ready_by < until) until = engine->ready_by;
  bool writes = engine->out.length > 0;
  struct feeds *feeds = &engine->delivery.feeds;
  struct pollfd files[OWN_FILES + MAX_FEEDS] = {
      {.fd = engine->process.socket, .events = (short)(writes ? POLLIN | POLLOUT : POLLIN)},
      {.fd = engine->queue.wake, .events = POLLIN},
      {.fd = now >= feeds->listen_at ? feeds->listener : -1, .events = POLLIN},
  };
  unsigned count = OWN_FILES;
  // What does not fit waits with the clients.
  bool room = engine->out.length + engine->delivery.submissions.waiting < MAX_WAITING;
  for (unsigned i = 0; i < feeds->count; i++) {
    bool full = feeds->feeds[i]->out.length > 0;
    short events = (short)((room ? POLLIN : 0) | (full ? POLLOUT : 0));
    files[count++] = (struct pollfd){.fd = feeds->feeds[i]->socket, .events = events};
  }
  int timeout = until > now ? (int)((until - now + MILLISECOND - 1) / MILLISECOND) : 0;
  if (poll(files, count, timeout) <= 0) return;
  if (files[0].revents & (POLLIN | POLLHUP | POLLERR)) read_process(engine);
  for (unsigned i = OWN_FILES; i < count; i++) {
    if (files[i].revents & ~POLLOUT) delivery_receive(&engine->delivery, feeds->feeds[i - OWN_FILES]);
  }
  if (files[2].revents) feeds_accept(feeds);
}

// What happens because time has passed.
static void check(struct engine *engine) {
  uint64_t now = now_ns();
  if (engine->state == STATE_RESTARTING && engine->process.pid == 0 && now >= engine->restart_at) {
    if (!engine->misses_hosts) engine->started_again++;
    start_process(engine);
  }
  if (engine->loading && now >= engine->ready_by) process_died(engine, "it was not ready in time");
  if (engine->write_by != 0 && now >= engine->write_by) process_died(engine, "it accepts no requests");
  if (now - engine->checked < check_interval(engine)) return;
  engine->checked = now;
  delivery_check_cancelled(&engine->delivery);
  if (now - engine->delivery.feeds.statistics_at >= STATISTICS_PAUSE) tell_statistics(engine);
  if (engine->delivery.holds) delivery_send(&engine->delivery, false);
  if (engine->process.pid != 0 && engine_process_has_ended(&engine->process)) {
    read_process(engine);
    if (engine->process.pid != 0) process_died(engine, NULL);
  }
}

static void tell_feeds(struct engine *engine) {
  delivery_close_broken_feeds(&engine->delivery);
  feeds_tell_engine(&engine->delivery.feeds, engine->state, engine->started_again, &engine->declaration);
  delivery_send_feeds(&engine->delivery);
}

void *engine_thread(void *argument) {
  struct engine *engine = argument;
  set_state(engine, STATE_STARTING);
  start_process(engine);
  // What Triton has not given back refers to the engine.
  while (!engine->stopped || engine->delivery.submissions.count > 0) {
    tell_feeds(engine);
    wait_for_something(engine);
    take_queue(engine);
    check(engine);
    if (engine->process.pid != 0 && engine->out.length > 0) write_process(engine);
  }
  if (engine->process.pid != 0) stop_process(engine);
  return NULL;
}
