// An engine from inside: its state, and how its process lives and dies. For the engine's thread only.
#pragma once

#include <pthread.h>

#include "constants.h"
#include "delivery.h"
#include "engine.h"
#include "engine_process.h"
#include "request_queue.h"
#include "restarts.h"

enum { READ_SIZE = 1 << 18, TEXT_SIZE = 1024 };

struct engine {
  struct settings settings;
  pthread_t thread;
  struct request_queue queue;

  pthread_mutex_t lock;  // guards start_ended
  pthread_cond_t start_ends;
  bool start_ended;

  struct engine *next;  // of all engines; guarded by the lock of that list, as `users`
  unsigned users;

  // The thread's own.
  int state;
  struct engine_process process;
  struct delivery delivery;
  struct buffer in, out;
  struct buffer declaration;  // JSON, of the engine that is or was loaded
  uint8_t statistics[STATISTICS_COUNT * sizeof(uint32_t)];
  struct restarts restarts;
  uint64_t checked;
  uint64_t ready_by;    // while the process loads
  uint64_t write_by;    // while the process does not take all of `out`; else 0
  uint64_t restart_at;  // while it is to be started again
  uint32_t started_again;
  bool loading, stopped;
  bool misses_hosts;  // the process has waited for other hosts in vain
  char start_error[TEXT_SIZE];  // coded; for others once the start has ended
  char told[TEXT_SIZE];         // why the process ends, in its own words
};

// What the engine's thread does, until the queue is closed.
void *engine_thread(void *engine);

void set_state(struct engine *engine, int state);

// Starts the process; it is ready when it says so.
void start_process(struct engine *engine);

// Ends what is left of the process and fails its requests; `reason` NULL: the way it ended is the reason.
void process_died(struct engine *engine, const char *reason);

// Asks the process to end, and makes sure that it does.
void stop_process(struct engine *engine);
