#include "request_queue.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool queue_open(struct request_queue *queue) {
  *queue = (struct request_queue){.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  pthread_mutex_init(&queue->lock, NULL);
  return queue->wake >= 0;
}

void queue_free(struct request_queue *queue) {
  pthread_mutex_destroy(&queue->lock);
  if (queue->wake >= 0) close(queue->wake);
}

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
  pthread_mutex_unlock(&queue->lock);
  wake(queue);
}

void queue_close(struct request_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->closed = true;
  pthread_mutex_unlock(&queue->lock);
  wake(queue);
}

struct request *queue_take(struct request_queue *queue, bool *closed) {
  uint64_t count;
  while (read(queue->wake, &count, sizeof count) > 0) continue;
  pthread_mutex_lock(&queue->lock);
  struct request *first = queue->first;
  queue->first = queue->last = NULL;
  *closed = queue->closed;
  pthread_mutex_unlock(&queue->lock);
  return first;
}
