// A client of a feed: reads what the bridge sends, checks every frame of it, and sends what it should and should not.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "chance.h"

enum { MAX_NUMBERS = 64 };  // its requests are called 0 to MAX_NUMBERS - 1

struct client {
  int socket;      // -1: closed
  bool is_open;    // the bridge has said so
  bool honest;     // the tokens of each request are 0, 1, 2, ...
  bool sent_garbage;
  struct buffer in, out;
  uint32_t requests;  // that were sent: numbers 0 to `requests` - 1
  uint32_t tokens[MAX_NUMBERS];
  uint32_t ends[MAX_NUMBERS];
};

// Connects to the bridge. False when nobody listens there.
bool client_open(struct client *client, const char *path, bool honest);

// Reads what there is, at most `most` bytes. A frame that cannot be read, an output after the end of its request and
// tokens in another order end the program. False at the end of the connection.
bool client_read(struct client *client, size_t most);

// Sends a request, if it has not sent MAX_NUMBERS. Its inputs are as they should be, or may be anything.
void client_request(struct client *client, struct chance *chance, bool spoil);

// Whether everything is sent.
bool client_flush(struct client *client);

// Ends the program unless each request has ended.
void client_check_ends(const struct client *client);

void client_cancel(struct client *client, uint64_t number);
void client_cancel_group(struct client *client, uint64_t number);
void client_send_garbage(struct client *client, struct chance *chance);
void client_close(struct client *client);
