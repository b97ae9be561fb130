// What Triton's threads leave for the engine's thread: requests that are handed over, submissions that are given back.
#pragma once

#include <pthread.h>

#include "request.h"

struct submission;

struct request_queue {
  int wake;              // readable when there is something to take; -1: not open
  pthread_mutex_t lock;  // guards what follows; Triton is never called while it is held
  struct request *first, *last;
  struct submission *given_back;
  bool closed;
};

bool queue_open(struct request_queue *queue);
void queue_free(struct request_queue *queue);

void queue_put(struct request_queue *queue, struct request *request);
void queue_give_back(struct request_queue *queue, struct submission *submission);
void queue_close(struct request_queue *queue);

// Takes all requests, linked by `next`, and all submissions, linked by `next_given_back`; NULL when there is none.
// Says whether the queue is closed.
struct request *queue_take(struct request_queue *queue, struct submission **given_back, bool *closed);
