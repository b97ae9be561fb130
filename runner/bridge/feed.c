#include "feed.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "constants.h"
#include "triton.h"

#define CLOSE_PATIENCE (200 * MILLISECOND)  // for what has not been sent yet

enum {
  HEAD_SIZE = 5,                // length and type of a frame
  STEP_HEAD_SIZE = 9,           // of a FEED_STEP frame, with the count of its outputs
  CANCEL_SIZE = 9,              // after the length, as in every frame
  MAX_KEPT = 1 << 16,
  READ_AT_ONCE = 1 << 14,
  MAX_WAITING = 1 << 24,        // bytes of output for a client that is behind
  BACKLOG = 4,
};

static const char gone[] = "its client is gone";

static void append_frame(struct buffer *buffer, int type, const void *body, size_t size) {
  buffer_append_u32(buffer, (uint32_t)(1 + size));
  buffer_append_u8(buffer, (uint8_t)type);
  buffer_append(buffer, body, size);
}

static void feed_tell(struct feed *feed, const struct buffer *frame) {
  if (feed->out.length == 0) feed->read_at = now_ns();
  buffer_append(&feed->out, frame->data, frame->length);
}

// ---- who is there

bool feeds_open(struct feeds *feeds, const char *path, double patience_seconds) {
  *feeds = (struct feeds){.listener = -1, .path = path, .patience = (uint64_t)(patience_seconds * (double)SECOND)};
  if (path == NULL) return true;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address.sun_path, path);
  feeds->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (unlink(path) != 0 && errno != ENOENT) return false;
  return feeds->listener >= 0 && bind(feeds->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
         chmod(path, 0600) == 0 && listen(feeds->listener, BACKLOG) == 0;
}

void feeds_accept(struct feeds *feeds) {
  int socket = accept4(feeds->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    LOG(TRITONSERVER_LOG_ERROR, "engine bridge: no feed can be opened: %s", strerror(errno));
    feeds->listen_at = now_ns() + SECOND;
    return;
  }
  if (feeds->count == MAX_FEEDS) {
    LOG(TRITONSERVER_LOG_WARN, "engine bridge: there are %d feeds, and no more are opened", MAX_FEEDS);
    close(socket);
    return;
  }
  struct feed *feed = calloc(1, sizeof *feed);
  if (feed == NULL) abort();
  feed->socket = socket;
  feeds->feeds[feeds->count++] = feed;
  uint32_t version = PROTOCOL_VERSION;
  feed->read_at = now_ns();
  append_frame(&feed->out, FEED_OPENED, &version, sizeof version);
  feed_tell(feed, &feeds->engine);
  feed_tell(feed, &feeds->statistics);
}

void feeds_close(struct feeds *feeds, struct feed *feed) {
  for (unsigned i = 0; i < feeds->count; i++) {
    if (feeds->feeds[i] == feed) feeds->feeds[i] = feeds->feeds[--feeds->count];
  }
  close(feed->socket);
  buffer_free(&feed->in);
  buffer_free(&feed->out);
  buffer_free(&feed->frame);
  free(feed);
}

void feeds_close_all(struct feeds *feeds) {
  uint64_t until = now_ns() + CLOSE_PATIENCE;
  while (feeds->count > 0) {
    struct feed *feed = feeds->feeds[0];
    for (uint64_t now = now_ns(); feed->waiting + feed->out.length > 0 && !feed->broken && now < until; now = now_ns()) {
      feed_send(feed, feeds->patience);
      if (feed_is_idle(feed)) feed_finish_frame(feed);
      struct pollfd socket = {.fd = feed->socket, .events = POLLOUT};
      if (feed->out.length > 0) poll(&socket, 1, (int)((until - now) / MILLISECOND) + 1);
    }
    feeds_close(feeds, feed);
  }
  if (feeds->listener >= 0) {
    close(feeds->listener);
    unlink(feeds->path);
  }
  buffer_free(&feeds->engine);
  buffer_free(&feeds->statistics);
}

// ---- what is sent to all

static void tell_all(struct feeds *feeds, struct buffer *last, struct buffer *now) {
  bool same = last->length == now->length && memcmp(last->data, now->data, now->length) == 0;
  if (same) {
    buffer_free(now);
    return;
  }
  buffer_free(last);
  *last = *now;
  for (unsigned i = 0; i < feeds->count; i++) feed_tell(feeds->feeds[i], last);
}

void feeds_tell_engine(struct feeds *feeds, int state, uint32_t restarts, const struct buffer *declaration) {
  struct __attribute__((packed)) {
    uint8_t state;
    uint32_t restarts;
  } head = {(uint8_t)state, restarts};
  struct buffer body = {0}, frame = {0};
  buffer_append(&body, &head, sizeof head);
  buffer_append(&body, declaration->data, declaration->length);
  append_frame(&frame, FEED_ENGINE, body.data, body.length);
  buffer_free(&body);
  tell_all(feeds, &feeds->engine, &frame);
}

void feeds_tell_statistics(struct feeds *feeds, uint32_t in_flight, const uint8_t *statistics, size_t size) {
  feeds->statistics_at = now_ns();
  struct buffer frame = {0};
  buffer_append_u32(&frame, (uint32_t)(1 + sizeof in_flight + size));
  buffer_append_u8(&frame, FEED_STATISTICS);
  buffer_append_u32(&frame, in_flight);
  buffer_append(&frame, statistics, size);
  tell_all(feeds, &feeds->statistics, &frame);
}

// ---- to one client

void feed_add(struct feed *feed, uint64_t request, int finish, int extras, uint32_t count, const void *data,
              size_t size) {
  struct __attribute__((packed)) {
    uint64_t request;
    uint8_t finish, extras;
    uint32_t count;
  } head = {request, (uint8_t)finish, (uint8_t)extras, count};
  if (feed->frame.length == 0) {
    buffer_reserve(&feed->frame, STEP_HEAD_SIZE);
    feed->frame.length = STEP_HEAD_SIZE;
  }
  buffer_append(&feed->frame, &head, sizeof head);
  buffer_append(&feed->frame, data, size);
  feed->waiting += sizeof head;
  feed->outputs++;
}

bool feed_is_idle(const struct feed *feed) { return feed->out.length == 0 && feed->broken == NULL; }

void feed_finish_frame(struct feed *feed) {
  if (feed->outputs == 0) return;
  struct __attribute__((packed)) {
    uint32_t length;
    uint8_t type;
    uint32_t outputs;
  } head = {(uint32_t)(feed->frame.length - sizeof head.length), FEED_STEP, feed->outputs};
  memcpy(feed->frame.data, &head, sizeof head);
  struct buffer empty = feed->out;
  feed->out = feed->frame;
  feed->frame = empty;
  feed->outputs = 0;
  feed->waiting = 0;
  feed->read_at = now_ns();
}

void feed_send(struct feed *feed, uint64_t patience) {
  if (feed->broken == NULL && feed->waiting > MAX_WAITING) feed->broken = "its client is too far behind";
  if (feed->broken != NULL || feed->out.length == 0) return;
  ssize_t size = send(feed->socket, feed->out.data + feed->sent, feed->out.length - feed->sent, MSG_NOSIGNAL);
  if (size > 0) {
    feed->sent += (size_t)size;
    feed->read_at = now_ns();
    if (feed->sent == feed->out.length) feed->out.length = feed->sent = 0;
  } else if (errno != EAGAIN && errno != EINTR) {
    feed->broken = gone;
  } else if (now_ns() - feed->read_at >= patience) {
    feed->broken = "its client does not read";
  }
}

// ---- from the client

void feed_receive(struct feed *feed) {
  uint8_t *place = buffer_reserve(&feed->in, READ_AT_ONCE);
  ssize_t size = recv(feed->socket, place, READ_AT_ONCE, 0);
  if (size > 0) {
    feed->in.length += (size_t)size;
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    feed->broken = gone;
  }
}

// Nothing but what is left of a frame stays, and no more memory than that usually takes.
static void drop_taken(struct feed *feed) {
  buffer_drop_front(&feed->in, feed->taken);
  feed->taken = 0;
  if (feed->in.length == 0 && feed->in.capacity > MAX_KEPT) buffer_free(&feed->in);
}

bool feed_next_frame(struct feed *feed, int *type, const uint8_t **body, size_t *size) {
  uint32_t length;
  const uint8_t *frame = feed->in.data + feed->taken;
  size_t left = feed->in.length - feed->taken;
  if (left >= HEAD_SIZE && feed->broken == NULL) {
    memcpy(&length, frame, sizeof length);
    *type = frame[sizeof length];
    bool cancels = *type == FEED_CANCEL || *type == FEED_CANCEL_GROUP;
    bool known = cancels ? length == CANCEL_SIZE : *type == FEED_REQUEST && length <= LARGEST_REQUEST;
    if (!known || length < 1) {
      feed_refuse_frame(feed);
    } else if (left - sizeof length >= length) {
      *body = frame + HEAD_SIZE;
      *size = length - 1;
      feed->taken += sizeof length + length;
      return true;
    }
  }
  drop_taken(feed);
  return false;
}

bool feed_is_at_fault(const struct feed *feed) { return feed->broken != NULL && feed->broken != gone; }

void feed_refuse_frame(struct feed *feed) { feed->broken = "its client sent a frame that cannot be read"; }
