// The engine process's life: started, failed, started again, stopped.

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "constants.h"
#include "engine_internal.h"
#include "triton.h"

#define STOP_PATIENCE (2 * SECOND)
#define WAIT_PAUSE SECOND  // between two waits for other hosts

void set_state(struct engine *engine, int state) {
  engine->state = state;
  if (state == STATE_STARTING) return;
  pthread_mutex_lock(&engine->lock);
  engine->start_ended = true;
  pthread_cond_broadcast(&engine->start_ends);
  pthread_mutex_unlock(&engine->lock);
}

static void process_failed(struct engine *engine, const char *reason) {
  if (engine->state == STATE_STARTING) {
    if (engine->start_error[0] == '\0') {
      snprintf(engine->start_error, TEXT_SIZE, E2407_ENGINE_START_FAILED, reason);
    }
    set_state(engine, STATE_GIVEN_UP);
    return;
  }
  uint64_t pause = WAIT_PAUSE;
  // A missing host does not count as a death of the engine.
  bool again = engine->misses_hosts || restarts_after_death(&engine->restarts, engine->settings.max_restarts, &pause);
  LOG(TRITONSERVER_LOG_ERROR, "engine process: %s; it will %s", reason, again ? "be restarted" : "not be restarted");
  engine->restart_at = now_ns() + pause;
  set_state(engine, again ? STATE_RESTARTING : STATE_GIVEN_UP);
}

void process_died(struct engine *engine, const char *reason) {
  char how[128], text[TEXT_SIZE];
  engine_process_end(&engine->process, how, sizeof how);
  memset(engine->statistics, 0, sizeof engine->statistics);
  engine->loading = false;
  engine->in.length = engine->out.length = 0;
  engine->write_by = 0;
  snprintf(text, sizeof text, E2400_ENGINE_PROCESS_DIED, reason ? reason : how);
  delivery_fail_all(&engine->delivery, text);
  process_failed(engine, reason ? reason : how);
}

void start_process(struct engine *engine) {
  if (!engine_process_start(&engine->process, &engine->settings)) {
    process_failed(engine, strerror(errno));
    return;
  }
  engine->loading = true;
  engine->misses_hosts = false;
  engine->ready_by = now_ns() + (uint64_t)(engine->settings.start_timeout_seconds * (double)SECOND);
}

void stop_process(struct engine *engine) {
  char how[128], text[TEXT_SIZE];
  snprintf(text, sizeof text, E2105_TRITON_UNAVAILABLE, "it is shutting down, or has unloaded the model");
  delivery_fail_all(&engine->delivery, text);
  delivery_send_feeds(&engine->delivery);
  static const uint8_t frame[] = {1, 0, 0, 0, FRAME_SHUTDOWN};
  if (engine->out.length == 0) send(engine->process.socket, frame, sizeof frame, MSG_NOSIGNAL);
  shutdown(engine->process.socket, SHUT_WR);
  struct pollfd socket = {.fd = engine->process.socket, .events = POLLIN};
  uint64_t patience = now_ns() + STOP_PATIENCE;
  for (uint64_t now = now_ns(); now < patience; now = now_ns()) {
    poll(&socket, 1, (int)((patience - now) / MILLISECOND) + 1);
    if (recv(engine->process.socket, buffer_reserve(&engine->in, READ_SIZE), READ_SIZE, 0) == 0) break;
  }
  engine_process_end(&engine->process, how, sizeof how);
}
