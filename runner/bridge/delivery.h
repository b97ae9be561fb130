// The way of tokens and text from the engine's steps to Triton's responses.
#pragma once

#include "request_table.h"
#include "status_page.h"

struct delivery {
  struct request_table requests;
  const struct status_page *status;
  struct buffer *to_engine;  // where CANCEL frames go
  bool holds;                // output waits for a consumer
};

// Takes the body of a STEP frame: output is kept, last outputs and errors answer their requests. False for a
// body that cannot be read.
bool delivery_take_step(struct delivery *delivery, const uint8_t *body, size_t size);

// Sends the output that may go. `more_waiting`: further steps are there to be read already.
void delivery_send(struct delivery *delivery, bool more_waiting);

// Lets go of the requests that nobody waits for any more.
void delivery_check_cancelled(struct delivery *delivery);

void delivery_fail_all(struct delivery *delivery, const char *coded_error);
