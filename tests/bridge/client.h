// A client of a feed: reads what the bridge sends, checks every frame of it, and sends what it should and should not.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "chance.h"

enum { MAX_NUMBERS = 64 };  // its requests are called 0 to MAX_NUMBERS - 1

struct client {
  int socket;      // -1: closed
  uint64_t feed;   // 0: the bridge has not said it yet
  bool honest;     // the tokens of each request are 0, 1, 2, ...
  struct buffer in;
  uint32_t tokens[MAX_NUMBERS];
  uint32_t ends[MAX_NUMBERS];
};

// Connects to the bridge. False when nobody listens there.
bool client_open(struct client *client, const char *path, bool honest);

// Reads what there is, at most `most` bytes. A frame that cannot be read, an output after the end of its request and
// tokens in another order end the program. False at the end of the connection.
bool client_read(struct client *client, size_t most);

void client_cancel(struct client *client, uint64_t number);
void client_send_garbage(struct client *client, struct chance *chance);
void client_close(struct client *client);
