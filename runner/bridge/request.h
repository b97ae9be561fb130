// One inference request in flight: what the engine is told about it, and where its responses go.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "feed.h"
#include "triton_abi.h"

struct request {
  uint64_t id;  // given by the table when the request is handed to the engine
  TRITONBACKEND_ModelInstance *instance;
  TRITONBACKEND_Request *triton;
  TRITONBACKEND_ResponseFactory *factory;
  int interface;
  bool decoupled;        // otherwise it has one response, at its end
  struct buffer frame;   // the REQUEST frame, until it is handed over
  struct buffer output;  // from the engine and not sent yet: i32 tokens, or UTF-8
  uint64_t held_since;   // ns; when the first of that arrived
  uint64_t began;        // ns
  uint64_t sent_at;      // ns; the last response; 0: none yet
  unsigned outputs;      // the outputs that were asked for, a bit each
  uint64_t submission;   // the number of the submission that it was; 0: its output goes to Triton
  struct feed *feed;     // where it came from, from when it is handed over; NULL: not from a feed
  uint64_t feed_request; // what the feed's client calls it
  uint64_t group;        // by which it can be cancelled with others; 0: by none
  struct request *next;  // in the queue of those that are not handed over
};

#define NO_SUBMISSION "the parameter feed is not for clients"

enum { REQUEST_ID_AT = 5 };  // where a REQUEST frame holds the id

// Takes over one of Triton's requests; NULL when it had to be answered immediately.
struct request *request_new(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *triton, int interface,
                            bool decoupled);

// Sends the waiting output, with the finish reason. False when Triton did not accept it.
bool request_send_output(struct request *request, int finish, bool final);

bool request_is_cancelled(struct request *request);

// The ends of a request. Each releases and frees it.
void request_finish(struct request *request, int finish);
void request_fail(struct request *request, const char *coded_error);
void request_end(struct request *request, bool success);  // with no further output
