// The requests that Triton has handed over and the engine's thread has not taken yet.
#pragma once

#include <pthread.h>

#include "request.h"

struct request_queue {
  int wake;              // readable when there is something to take; -1: not open
  pthread_mutex_t lock;  // guards what follows; Triton is never called while it is held
  struct request *first, *last;
  bool closed;
};

bool queue_open(struct request_queue *queue);
void queue_free(struct request_queue *queue);

void queue_put(struct request_queue *queue, struct request *request);
void queue_close(struct request_queue *queue);

// Takes all requests, linked by `next`; NULL when there is none. Says whether the queue is closed.
struct request *queue_take(struct request_queue *queue, bool *closed);
