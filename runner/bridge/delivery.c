#include "delivery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "constants.h"
#include "triton.h"

#define HOLD (50 * MILLISECOND)  // the longest that output waits while Triton does not keep up
#define PACE (8 * MILLISECOND)   // between two responses: Triton's HTTP server loses events that come faster

// ---- requests of feeds

// What the request has gathered becomes an output of the frame in the making.
static void flush(struct request *request, int finish) {
  struct buffer *output = &request->output;
  feed_add(request->feed, request->feed_request, finish, 0, (uint32_t)(output->length / sizeof(int32_t)), output->data,
           output->length);
  output->length = 0;
}

static void tell_error(struct request *request, const char *coded_error, size_t size) {
  if (request->output.length > 0) flush(request, NOT_FINISHED);
  feed_add(request->feed, request->feed_request, ERROR_FINISH, 0, (uint32_t)size, coded_error, size);
}

// ---- how requests end early

void delivery_fail(struct request *request, const char *coded_error) {
  if (request->feed == NULL) {
    request_fail(request, coded_error);
    return;
  }
  tell_error(request, coded_error, strlen(coded_error));
  request_end(request, false);
}

static void cancel(struct delivery *delivery, struct request *request) {
  buffer_append_u32(delivery->to_engine, 1 + sizeof request->id);
  buffer_append_u8(delivery->to_engine, FRAME_CANCEL);
  buffer_append_u64(delivery->to_engine, request->id);
  table_remove(&delivery->requests, request);
  if (request->feed != NULL) flush(request, CANCELLED);
  request_end(request, false);
}

// ---- from the engine

struct output {
  uint64_t id;
  int finish, extras;
  uint32_t count;
  const uint8_t *data;
  size_t size;  // of the data with its extras
};

// Reads the output at `*at`, and moves on to the next. False if it extends beyond the end.
static bool read_output(const uint8_t **at, const uint8_t *end, struct output *output) {
  struct __attribute__((packed)) {
    uint64_t id;
    uint8_t finish, extras;
    uint32_t count;
  } head;
  if ((size_t)(end - *at) < sizeof head) return false;
  memcpy(&head, *at, sizeof head);
  *at += sizeof head;
  size_t left = (size_t)(end - *at);
  size_t size = (size_t)head.count * (head.finish >= TEXT_FINISH ? 1 : sizeof(int32_t));
  if (head.extras & CACHED_TOKENS) size += sizeof(uint32_t);
  if (head.extras & LOG_PROBS) {
    if (size >= left) return false;
    size += 1 + head.count * (sizeof(float) + (*at)[size] * (sizeof(int32_t) + sizeof(float)));
  }
  if (size > left) return false;
  *output = (struct output){head.id, head.finish, head.extras, head.count, *at, size};
  *at += size;
  return true;
}

static void take_error(struct delivery *delivery, struct request *request, const struct output *output) {
  char *text = strndup((const char *)output->data, output->size);
  if (text == NULL) abort();
  table_remove(&delivery->requests, request);
  delivery_fail(request, text);
  free(text);
}

static void take_for_feed(struct delivery *delivery, struct request *request, const struct output *output) {
  struct feed *feed = request->feed;
  bool last = output->finish != NOT_FINISHED;
  feed->waiting += output->size;
  if (output->extras != 0) {
    if (request->output.length > 0) flush(request, NOT_FINISHED);
    feed_add(feed, request->feed_request, output->finish, output->extras, output->count, output->data, output->size);
  } else {
    buffer_append(&request->output, output->data, output->size);
    if (last) flush(request, output->finish);
  }
  if (last) {
    table_remove(&delivery->requests, request);
    request_end(request, true);
  }
}

static void take_for_triton(struct delivery *delivery, struct request *request, const struct output *output) {
  size_t unit = request->interface == INTERFACE_TOKENS ? sizeof(int32_t) : 1;
  // Tensors are not merged: each output is a response.
  if (request->interface == INTERFACE_VLLM && request->output.length > 0) {
    request_send_output(request, NOT_FINISHED, false);
  }
  if (request->output.length == 0) request->held_since = now_ns();
  buffer_append(&request->output, output->data, output->count * unit);
  if (output->finish % TEXT_FINISH != NOT_FINISHED) {
    table_remove(&delivery->requests, request);
    request_finish(request, output->finish % TEXT_FINISH);
  }
}

// False for an output of an interface other than its request's.
static bool take_output(struct delivery *delivery, const struct output *output) {
  struct request *request = table_find(&delivery->requests, output->id);
  if (request == NULL) return true;
  if (output->finish == ERROR_FINISH) {
    take_error(delivery, request, output);
    return true;
  }
  if ((output->finish >= TEXT_FINISH) != (request->interface != INTERFACE_TOKENS)) return false;
  if (request->feed != NULL) {
    take_for_feed(delivery, request, output);
  } else {
    take_for_triton(delivery, request, output);
  }
  return true;
}

bool delivery_take_step(struct delivery *delivery, const uint8_t *body, size_t size) {
  const uint8_t *at = body, *end = body + size;
  uint32_t outputs;
  if (size < sizeof outputs) return false;
  memcpy(&outputs, at, sizeof outputs);
  at += sizeof outputs;
  for (; outputs > 0; outputs--) {
    struct output output;
    if (!read_output(&at, end, &output) || !take_output(delivery, &output)) return false;
  }
  return at == end;
}

// ---- to Triton

void delivery_send(struct delivery *delivery, bool more_waiting) {
  uint64_t now = now_ns();
  delivery->holds = false;
  for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request == NULL || request->feed != NULL || !request->decoupled || request->output.length == 0) continue;
    bool may_wait = more_waiting || now - request->sent_at < PACE;
    if (may_wait && request->sent_at > 0 && now - request->held_since < HOLD) {
      delivery->holds = true;
    } else if (request_is_cancelled(request) || !request_send_output(request, NOT_FINISHED, false)) {
      cancel(delivery, request);
    }
  }
}

void delivery_check_cancelled(struct delivery *delivery) {
  for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request != NULL && request->feed == NULL && request_is_cancelled(request)) cancel(delivery, request);
  }
}

void delivery_fail_all(struct delivery *delivery, const char *coded_error) {
  while (delivery->requests.count > 0) {
    struct request *request = delivery->requests.requests[delivery->requests.in_use - 1];
    table_remove(&delivery->requests, request);
    delivery_fail(request, coded_error);
  }
}

// ---- to and from the clients of feeds

void delivery_send_feeds(struct delivery *delivery) {
  for (unsigned i = 0; i < delivery->feeds.count; i++) {
    struct feed *feed = delivery->feeds.feeds[i];
    feed_send(feed, delivery->feeds.patience);
    if (!feed_is_idle(feed) || feed->waiting == 0) continue;
    for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
      struct request *request = delivery->requests.requests[place];
      if (request != NULL && request->feed == feed && request->output.length > 0) flush(request, NOT_FINISHED);
    }
    feed_finish_frame(feed);
    feed_send(feed, delivery->feeds.patience);
  }
}

// A request that came over a feed is that feed's again.
static bool return_to_feed(struct delivery *delivery, struct request *request) {
  if (request->submission == 0) return true;
  struct submission *submission = submissions_find(&delivery->submissions, request->submission);
  if (submission == NULL) {
    char text[256];
    snprintf(text, sizeof text, E2403_MALFORMED_REQUEST, NO_SUBMISSION);
    request_fail(request, text);
    return false;
  }
  submissions_arrived(&delivery->submissions, submission);
  request->feed = submission->feed;
  request->feed_request = submission->feed_request;
  if (request->feed != NULL && !submission->cancelled) return true;
  if (request->feed != NULL) flush(request, CANCELLED);
  request_end(request, false);
  return false;
}

bool delivery_admit(struct delivery *delivery, struct request *request) {
  if (!return_to_feed(delivery, request)) return false;
  if (!table_is_full(&delivery->requests)) return true;
  char text[256], limit[16];
  snprintf(limit, sizeof limit, "%d", TABLE_PLACES);
  snprintf(text, sizeof text, E2106_OVERLOADED, limit, "requests are with the engine", "add runners");
  delivery_fail(request, text);
  return false;
}

static struct request *find(struct delivery *delivery, const struct feed *feed, uint64_t feed_request) {
  for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request != NULL && request->feed == feed && request->feed_request == feed_request) return request;
  }
  return NULL;
}

// What has ended by itself in the meantime is not found.
static void take_cancel(struct delivery *delivery, const struct feed *feed, uint64_t feed_request) {
  struct request *request = find(delivery, feed, feed_request);
  if (request != NULL) {
    cancel(delivery, request);
    return;
  }
  struct submission *submission = submissions_find_of(&delivery->submissions, feed, feed_request);
  if (submission != NULL) submission->cancelled = true;
}

// Requests of Triton's own clients; those that Triton still has are not found.
static void cancel_group(struct delivery *delivery, uint64_t group) {
  for (uint32_t place = 0; group != 0 && place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request != NULL && request->feed == NULL && request->group == group) cancel(delivery, request);
  }
}

void delivery_receive(struct delivery *delivery, struct feed *feed) {
  int type;
  const uint8_t *body;
  size_t size;
  feed_receive(feed);
  while (feed_next_frame(feed, &type, &body, &size)) {
    if (type == FEED_REQUEST) {
      if (!submissions_submit(&delivery->submissions, feed, body, size)) feed_refuse_frame(feed);
    } else {
      uint64_t number;
      memcpy(&number, body, sizeof number);
      if (type == FEED_CANCEL) {
        take_cancel(delivery, feed, number);
      } else {
        cancel_group(delivery, number);
      }
    }
  }
}

void delivery_close_broken_feeds(struct delivery *delivery) {
  for (unsigned i = delivery->feeds.count; i-- > 0;) {
    struct feed *feed = delivery->feeds.feeds[i];
    if (feed->broken == NULL) continue;
    uint32_t cancelled = 0;
    for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
      struct request *request = delivery->requests.requests[place];
      if (request == NULL || request->feed != feed) continue;
      cancel(delivery, request);
      cancelled++;
    }
    submissions_forget_feed(&delivery->submissions, feed);
    LOG(feed_is_at_fault(feed) ? TRITONSERVER_LOG_WARN : TRITONSERVER_LOG_INFO,
        "engine bridge: closed a feed: %s; requests cancelled: %u", feed->broken, cancelled);
    feeds_close(&delivery->feeds, feed);
  }
}
