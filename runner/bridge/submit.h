// Requests that come over feeds: each becomes an ordinary request to Triton, which hands it back to this bridge when
// it is its turn. For the engine's thread only, except where it says otherwise.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed.h"
#include "request_queue.h"
#include "triton_abi.h"

// A request that a feed's client sent, until Triton has given it back.
struct submission {
  struct submission *next;             // of those under way
  struct submission *next_given_back;  // of what the queue holds
  uint64_t number;        // the request's parameter by which it is recognised
  struct feed *feed;      // NULL: it is closed
  uint64_t feed_request;  // what its client calls it
  bool cancelled;         // before it arrived
  bool arrived;           // it is no longer under way
  struct request_queue *queue;  // where it is put when Triton gives it back
  char *error;                  // why Triton refused it
  size_t size;
  uint8_t data[];  // its inputs, which are Triton's until then
};

struct submissions {
  struct submission *first, *last;  // under way: Triton has not handed them over yet
  size_t waiting;                   // bytes of these
  uint32_t count;                   // that Triton has not given back
  uint64_t last_number;
  struct request_queue *queue;
  TRITONSERVER_ResponseAllocator *allocator;
  TRITONSERVER_Server *server;
  char *_Atomic model;  // which they are for; NULL: not known yet
};

// `queue` is where Triton's threads put what they give back.
TRITONSERVER_Error *submissions_open(struct submissions *submissions, struct request_queue *queue);
void submissions_close(struct submissions *submissions);

// From now on, requests are for this model; the first that is told stays. From any thread, one at a time.
void submissions_use_model(struct submissions *submissions, TRITONSERVER_Server *server, const char *model);

// Gives Triton the request in the body of a REQUEST frame. When it is refused, the feed has its end. False for a
// body that cannot be read.
bool submissions_submit(struct submissions *submissions, struct feed *feed, const uint8_t *body, size_t size);

// One that is under way and has this number, or to which the feed's client gave this one; NULL: there is none.
struct submission *submissions_find(const struct submissions *submissions, uint64_t number);
struct submission *submissions_find_of(const struct submissions *submissions, const struct feed *feed,
                                       uint64_t feed_request);

// It is no longer under way: Triton has handed it over, and the feed will have its end from elsewhere.
void submissions_arrived(struct submissions *submissions, struct submission *submission);

// Frees what Triton has given back, linked by `next_given_back`. Those still under way were refused: their feeds are told.
void submissions_take_back(struct submissions *submissions, struct submission *given_back);

// The feed is closed: nobody is told what becomes of its requests.
void submissions_forget_feed(struct submissions *submissions, const struct feed *feed);
