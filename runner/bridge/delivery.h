// The path of tokens and text from the engine's steps to Triton's responses and to feeds.
#pragma once

#include "feed.h"
#include "request_table.h"
#include "submit.h"

struct delivery {
  struct request_table requests;
  struct feeds feeds;
  struct submissions submissions;  // requests of feeds that Triton has
  struct buffer *to_engine;  // where CANCEL frames go
  bool holds;                // output waits for a later response
};

// Takes the body of a STEP frame: output is kept, last outputs and errors end their requests. False for a body
// that cannot be read.
bool delivery_take_step(struct delivery *delivery, const uint8_t *body, size_t size);

// Sends the responses that may go. `more_waiting`: further steps can be read already.
void delivery_send(struct delivery *delivery, bool more_waiting);

// Sends the feeds what may go.
void delivery_send_feeds(struct delivery *delivery);

// A request may be handed to the engine; one that came over a feed is that feed's again. If false, it has got its
// end instead: its client has cancelled it already, or is gone, or there are too many.
bool delivery_admit(struct delivery *delivery, struct request *request);

// Reads what the client of a feed sent.
void delivery_receive(struct delivery *delivery, struct feed *feed);

// Closes the feeds that cannot go on; their requests are cancelled.
void delivery_close_broken_feeds(struct delivery *delivery);

// Drops the requests that nobody waits for any more.
void delivery_check_cancelled(struct delivery *delivery);

// Ends a request that the engine does not have.
void delivery_fail(struct request *request, const char *coded_error);
void delivery_fail_all(struct delivery *delivery, const char *coded_error);
