#include "delivery.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define HOLD (50 * MILLISECOND)  // output waits no longer for a consumer that does not keep up
#define PACE (8 * MILLISECOND)   // between two responses to a consumer that does not say whether it does

static void cancel(struct delivery *delivery, struct request *request) {
  buffer_append_u32(delivery->to_engine, 1 + sizeof request->id);
  buffer_append_u8(delivery->to_engine, FRAME_CANCEL);
  buffer_append_u64(delivery->to_engine, request->id);
  table_remove(&delivery->requests, request);
  request_drop(request);
}

// False for an output of the other interface than its request's.
static bool take_output(struct delivery *delivery, uint64_t id, int finish, const uint8_t *data, size_t size) {
  struct request *request = table_find(&delivery->requests, id);
  if (request == NULL) return true;
  if (finish == ERROR_FINISH) {
    char *text = strndup((const char *)data, size);
    if (text == NULL) abort();
    table_remove(&delivery->requests, request);
    request_fail(request, text);
    free(text);
    return true;
  }
  if ((finish >= TEXT_FINISH) != (request->interface == INTERFACE_TEXT)) return false;
  finish %= TEXT_FINISH;
  if (request->output.length == 0) request->held_since = now_ns();
  buffer_append(&request->output, data, size);
  if (finish != NOT_FINISHED) {
    table_remove(&delivery->requests, request);
    request_finish(request, finish);
  }
  return true;
}

bool delivery_take_step(struct delivery *delivery, const uint8_t *body, size_t size) {
  struct __attribute__((packed)) {
    uint64_t id;
    uint8_t finish;
    uint32_t count;
  } head;
  const uint8_t *at = body, *end = body + size;
  uint32_t outputs;
  if (size < sizeof outputs) return false;
  memcpy(&outputs, at, sizeof outputs);
  at += sizeof outputs;
  for (; outputs > 0; outputs--) {
    if ((size_t)(end - at) < sizeof head) return false;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    size_t data_size = (size_t)head.count * (head.finish >= TEXT_FINISH ? 1 : sizeof(int32_t));
    if ((size_t)(end - at) < data_size || !take_output(delivery, head.id, head.finish, at, data_size)) {
      return false;
    }
    at += data_size;
  }
  return at == end;
}

// By its consumer, in its slot, or by Triton because the client went away.
static bool is_cancelled(const struct delivery *delivery, struct request *request) {
  bool by_consumer = request->consumer_slot >= 0 && delivery->status->shared &&
                     status_page_consumed(delivery->status, request->consumer_slot) == STATUS_CANCELLED;
  return by_consumer || request_is_cancelled(request);
}

// A consumer that does not count may be behind Triton's HTTP server, which loses events when they come fast.
static bool consumer_is_behind(const struct delivery *delivery, const struct request *request, uint64_t now) {
  if (request->consumer_slot < 0 || !delivery->status->shared) return now - request->sent_at < PACE;
  return status_page_consumed(delivery->status, request->consumer_slot) != request->sent;
}

void delivery_send(struct delivery *delivery, bool more_waiting) {
  uint64_t now = now_ns();
  delivery->holds = false;
  for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request == NULL || request->output.length == 0) continue;
    bool behind = more_waiting || consumer_is_behind(delivery, request, now);
    if (behind && request->sent > 0 && now - request->held_since < HOLD) {
      delivery->holds = true;
    } else if (is_cancelled(delivery, request) || !request_send_output(request, NOT_FINISHED, false)) {
      cancel(delivery, request);
    }
  }
}

void delivery_check_cancelled(struct delivery *delivery) {
  for (uint32_t place = 0; place < delivery->requests.in_use; place++) {
    struct request *request = delivery->requests.requests[place];
    if (request != NULL && is_cancelled(delivery, request)) cancel(delivery, request);
  }
}

void delivery_fail_all(struct delivery *delivery, const char *coded_error) {
  while (delivery->requests.count > 0) {
    struct request *request = delivery->requests.requests[delivery->requests.in_use - 1];
    table_remove(&delivery->requests, request);
    request_fail(request, coded_error);
  }
}
