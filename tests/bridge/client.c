#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "constants.h"
#include "frames.h"
#include "triton_stand_in.h"

bool client_open(struct client *client, const char *path, bool honest) {
  *client = (struct client){.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), .honest = honest};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path);
  if (connect(client->socket, (struct sockaddr *)&address, sizeof address) == 0) return true;
  client_close(client);
  return false;
}

void client_close(struct client *client) {
  if (client->socket >= 0) close(client->socket);
  client->socket = -1;
  buffer_free(&client->in);
  buffer_free(&client->out);
}

// The size of an output's data, with its extras, of which `left` bytes are there.
static size_t size_of_data(const uint8_t *data, size_t left, int finish, int extras, uint32_t count) {
  size_t size = (size_t)count * (finish >= TEXT_FINISH ? 1 : 4);
  if (extras & CACHED_TOKENS) size += 4;
  if (extras & LOG_PROBS) {
    if (size >= left) wrong("a feed's output is cut off");
    size += 1 + count * (4u + data[size] * 8u);
  }
  if (size > left) wrong("a feed's output is cut off");
  return size;
}

static void take_output(struct client *client, uint64_t number, int finish, const uint8_t *data, uint32_t count) {
  if (number >= client->requests) wrong("a feed has an output for a request that it never had");
  if (client->ends[number] > 0) wrong("a feed has an output after the end of its request");
  if (finish >= TEXT_FINISH && finish != ERROR_FINISH) wrong("a feed has text");
  if (finish != NOT_FINISHED) client->ends[number]++;
  if (!client->honest || finish == ERROR_FINISH) return;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t token = client->tokens[number]++, came;
    memcpy(&came, data + 4 * (size_t)i, sizeof came);
    if (came != token) wrong("a feed has %u where %u belongs", came, token);
  }
}

static void take_step(struct client *client, const uint8_t *at, const uint8_t *end) {
  uint32_t outputs;
  if (end - at < 4) wrong("a step of a feed is cut off");
  memcpy(&outputs, at, 4);
  for (at += 4; outputs > 0; outputs--) {
    uint64_t number;
    uint32_t count;
    if (end - at < 14) wrong("a step of a feed is cut off");
    memcpy(&number, at, 8);
    memcpy(&count, at + 10, 4);
    int finish = at[8], extras = at[9];
    at += 14;
    size_t size = size_of_data(at, (size_t)(end - at), finish, extras, count);
    take_output(client, number, finish, at, count);
    at += size;
  }
  if (at != end) wrong("a step of a feed has more than its outputs");
}

static void take_frame(struct client *client, int type, const uint8_t *body, size_t size) {
  uint32_t version;
  if (!client->is_open && type != FEED_OPENED) wrong("a feed begins with a frame of type %d", type);
  switch (type) {
    case FEED_OPENED:
      if (size != 4) wrong("a feed is opened by a frame of %zu bytes", size);
      memcpy(&version, body, 4);
      if (version != PROTOCOL_VERSION) wrong("a feed is of version %u", version);
      client->is_open = true;
      break;
    case FEED_ENGINE:
      if (size < 5 || body[0] > STATE_GIVEN_UP) wrong("a feed gets an unknown state of the engine");
      break;
    case FEED_STATISTICS:
      if (size != 4 * (1 + STATISTICS_COUNT)) wrong("a feed has statistics of %zu bytes", size);
      break;
    case FEED_STEP:
      take_step(client, body, body + size);
      break;
    default:
      wrong("a feed has a frame of type %d", type);
  }
}

bool client_read(struct client *client, size_t most) {
  if (client->socket < 0) return false;
  client_flush(client);
  ssize_t size = recv(client->socket, buffer_reserve(&client->in, most), most, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) return false;
  client->in.length += (size_t)size;
  uint32_t length;
  while (client->in.length >= 4) {
    memcpy(&length, client->in.data, 4);
    if (length < 1) wrong("a feed has a frame without a type");
    if (client->in.length < 4 + (size_t)length) break;
    take_frame(client, client->in.data[4], client->in.data + 5, length - 1);
    buffer_drop_front(&client->in, 4 + (size_t)length);
  }
  return true;
}

bool client_flush(struct client *client) {
  if (client->socket < 0 || client->out.length == 0) return true;
  ssize_t size = send(client->socket, client->out.data, client->out.length, MSG_NOSIGNAL);
  if (size > 0) buffer_drop_front(&client->out, (size_t)size);
  return client->out.length == 0;
}

static void send_all(struct client *client, const struct buffer *bytes) {
  if (client->socket < 0) return;
  buffer_append(&client->out, bytes->data, bytes->length);
  client_flush(client);
}

static void append_input(struct buffer *body, struct chance *chance, uint32_t number) {
  static const char *const names[] = {"input_ids", "request_output_len", "streaming", "end_id"};
  static const uint8_t data[100000] = {1, 2, 3};
  const char *name = names[number];
  uint8_t rank = chance_one_in(chance, 60) ? 255 : (uint8_t)chance_below(chance, 4);
  uint32_t size = chance_one_in(chance, 30) ? sizeof data : chance_below(chance, 40);
  buffer_append_u8(body, (uint8_t)strlen(name));
  buffer_append(body, name, strlen(name));
  buffer_append_u8(body, TRITONSERVER_TYPE_INT32);
  buffer_append_u8(body, rank);
  for (unsigned i = 0; i < rank; i++) buffer_append_u64(body, chance_next(chance));
  buffer_append_u32(body, size);
  buffer_append(body, data, size);
}

void client_request(struct client *client, struct chance *chance, bool spoil) {
  struct buffer inputs = {0}, frame = {0};
  if (client->requests == MAX_NUMBERS) return;
  uint32_t count = chance_below(chance, 5);
  buffer_append_u16(&inputs, (uint16_t)count);
  for (uint32_t i = 0; i < count; i++) append_input(&inputs, chance, i);
  if (spoil) frames_spoil(&inputs, chance);
  buffer_append_u32(&frame, (uint32_t)(9 + inputs.length));
  buffer_append_u8(&frame, FEED_REQUEST);
  buffer_append_u64(&frame, client->requests++);
  buffer_append(&frame, inputs.data, inputs.length);
  send_all(client, &frame);
  buffer_free(&inputs);
  buffer_free(&frame);
}

void client_check_ends(const struct client *client) {
  for (uint32_t i = 0; i < client->requests; i++) {
    if (client->ends[i] != 1) wrong("request %u of a feed has no end", i);
  }
}

static void cancel(struct client *client, int type, uint64_t number) {
  struct buffer frame = {0};
  buffer_append_u32(&frame, 9);
  buffer_append_u8(&frame, (uint8_t)type);
  buffer_append_u64(&frame, number);
  send_all(client, &frame);
  buffer_free(&frame);
}

void client_cancel(struct client *client, uint64_t number) { cancel(client, FEED_CANCEL, number); }

void client_cancel_group(struct client *client, uint64_t number) { cancel(client, FEED_CANCEL_GROUP, number); }

void client_send_garbage(struct client *client, struct chance *chance) {
  client->sent_garbage = true;
  struct buffer bytes = {0};
  uint32_t length = chance_one_in(chance, 10) ? 40000 : 1 + chance_below(chance, 30);
  for (uint32_t i = 0; i < length; i++) buffer_append_u8(&bytes, (uint8_t)chance_next(chance));
  static const uint8_t head[] = {9, 0, 0, 0, FEED_CANCEL};
  for (uint32_t i = chance_below(chance, sizeof head + 1); i > 0 && i <= length; i--) bytes.data[i - 1] = head[i - 1];
  send_all(client, &bytes);
  buffer_free(&bytes);
}
