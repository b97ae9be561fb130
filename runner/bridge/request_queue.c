#include "request_queue.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "submit.h"

bool queue_open(struct request_queue *queue) {
  *queue = (struct request_queue){.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  pthread_mutex_init(&queue->lock, NULL);
  return queue->wake >= 0;
}

void queue_free(struct request_queue *queue) {
  pthread_mutex_destroy(&queue->lock);
  if (queue->wake >= 0) close(queue->wake);
}

// With the lock held: once the engine's thread has taken the last, the queue may be gone.
static void wake(struct request_queue *queue) {
  uint64_t one = 1;
  if (write(queue->wake, &one, sizeof one) < 0) abort();
}

void queue_put(struct request_queue *queue, struct request *request) {
  pthread_mutex_lock(&queue->lock);
  if (queue->last != NULL) {
    queue->last->next = request;
  } else {
    queue->first = request;
  }
  queue->last = request;
  wake(queue);
  pthread_mutex_unlock(&queue->lock);
}

void queue_give_back(struct request_queue *queue, struct submission *submission) {
  pthread_mutex_lock(&queue->lock);
  submission->next_given_back = queue->given_back;
  queue->given_back = submission;
  wake(queue);
  pthread_mutex_unlock(&queue->lock);
}

void queue_close(struct request_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->closed = true;
  wake(queue);
  pthread_mutex_unlock(&queue->lock);
}

struct request *queue_take(struct request_queue *queue, struct submission **given_back, bool *closed) {
  uint64_t count;
  while (read(queue->wake, &count, sizeof count) > 0) continue;
  pthread_mutex_lock(&queue->lock);
  struct request *first = queue->first;
  queue->first = queue->last = NULL;
  *given_back = queue->given_back;
  queue->given_back = NULL;
  *closed = queue->closed;
  pthread_mutex_unlock(&queue->lock);
  return first;
}
