// Feeds: connections over which clients get what the engine's steps gave their requests, a frame for each step
// while they keep up. docs/architecture/4-frames.md holds the frames. For the engine's thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"

enum { MAX_FEEDS = 16 };

struct feed {
  int socket;
  struct buffer in;     // from the client: what is left of it
  size_t taken;         // of `in`
  struct buffer out;    // whole frames
  size_t sent;          // of `out`
  uint64_t read_at;     // ns; while `out` holds something: when the client last read
  struct buffer frame;  // a FEED_STEP frame in the making, for when all of `out` is sent
  uint32_t outputs;     // in it
  size_t waiting;       // bytes of output in it, or kept by requests of this feed
  const char *broken;  // why it must be closed; NULL: it works
};

struct feeds {
  int listener;  // -1: none
  const char *path;
  uint64_t patience;   // ns; a client that reads nothing for this long is abandoned
  uint64_t listen_at;  // ns; nobody is let in before it
  struct feed *feeds[MAX_FEEDS];
  unsigned count;
  struct buffer engine;      // the ENGINE frame as last told
  struct buffer statistics;  // the STATISTICS frame as last told
  uint64_t statistics_at;    // ns
};

// Listens at `path`; NULL: nowhere. False, with errno, if it cannot.
bool feeds_open(struct feeds *feeds, const char *path, double patience_seconds);
void feeds_accept(struct feeds *feeds);
void feeds_close(struct feeds *feeds, struct feed *feed);
void feeds_close_all(struct feeds *feeds);  // a moment after what waits could be sent

// Tells all clients, if it is news.
void feeds_tell_engine(struct feeds *feeds, int state, uint32_t restarts, const struct buffer *declaration);
void feeds_tell_statistics(struct feeds *feeds, uint32_t in_flight, const uint8_t *statistics, size_t size);

// Puts an output into the frame in the making; `size` bytes of data, which hold `count` items.
void feed_add(struct feed *feed, uint64_t request, int finish, int extras, uint32_t count, const void *data,
              size_t size);

// Whether everything is sent, so that the frame in the making can go when it is finished.
bool feed_is_idle(const struct feed *feed);
void feed_finish_frame(struct feed *feed);

// Sends what may go. A client that takes nothing for `patience` ns breaks its feed.
void feed_send(struct feed *feed, uint64_t patience);

// Reads some of what the client sent; feed_next_frame takes the whole frames from it, and must be called until it
// returns false. A body stays until the next call.
void feed_receive(struct feed *feed);
bool feed_next_frame(struct feed *feed, int *type, const uint8_t **body, size_t *size);

// Whether it is closed for what its client did, and not because the client has left.
bool feed_is_at_fault(const struct feed *feed);

// The client sent what cannot be read: its feed cannot go on.
void feed_refuse_frame(struct feed *feed);
