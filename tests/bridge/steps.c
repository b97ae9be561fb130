// The path of the engine's steps to Triton and to feeds, without threads or processes: `steps SEED ROUNDS`.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "chance.h"
#include "client.h"
#include "clock.h"
#include "constants.h"
#include "delivery.h"
#include "frames.h"
#include "restarts.h"
#include "settings.h"
#include "triton_stand_in.h"

enum { MAX_REQUESTS = 20, MAX_CLIENTS = 3, STEPS = 30 };

struct round {
  struct chance chance;
  bool honest;
  struct delivery delivery;
  struct buffer to_engine;
  struct request_queue queue;
  TRITONSERVER_Server server;
  struct client clients[MAX_CLIENTS];
  struct feed *feeds[MAX_CLIENTS];
  struct account accounts[MAX_REQUESTS];
  struct stream streams[MAX_REQUESTS + MAX_CLIENTS * MAX_NUMBERS];
  uint32_t requests, admitted;
};

// A client comes while the process may open no more files: it is let in later.
static void accept_without_files(struct feeds *feeds) {
  struct rlimit files, none;
  getrlimit(RLIMIT_NOFILE, &files);
  none = (struct rlimit){0, files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  unsigned before = feeds->count;
  feeds_accept(feeds);
  setrlimit(RLIMIT_NOFILE, &files);
  if (feeds->count != before || feeds->listen_at < now_ns()) wrong("a feed was opened without a file");
}

static void open_clients(struct round *round, const char *path) {
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    struct client *client = &round->clients[i];
    if (!client_open(client, path, round->honest)) wrong("a feed cannot be opened");
    if (chance_one_in(&round->chance, 50)) accept_without_files(&round->delivery.feeds);
    feeds_accept(&round->delivery.feeds);
    round->feeds[i] = round->delivery.feeds.feeds[i];
    delivery_send_feeds(&round->delivery);
    while (!client->is_open) client_read(client, 4096);
  }
}

static void hand_over(struct round *round, TRITONBACKEND_Request *triton, int interface) {
  static TRITONBACKEND_ModelInstance instance;
  struct request *request = request_new(&instance, triton, interface, account_of(triton)->decoupled);
  if (request != NULL && !frames_is_request(request->frame.data, request->frame.length)) wrong("a REQUEST cannot be read");
  if (request == NULL || !delivery_admit(&round->delivery, request)) return;
  if (chance_one_in(&round->chance, 20)) {
    delivery_fail(request, "E2401 EngineNotReady: by chance");
    return;
  }
  table_add(&round->delivery.requests, request);
  round->streams[round->admitted++] = (struct stream){.id = request->id, .interface = interface};
}

static void add_request(struct round *round, uint32_t fault_one_in) {
  struct chance *chance = &round->chance;
  uint32_t number = round->requests++;
  struct account *account = &round->accounts[number];
  account->chance = chance_of(chance_next(chance));
  account->fault_one_in = fault_one_in;
  int interface = (int)chance_below(chance, 3);
  account->decoupled = interface == INTERFACE_VLLM || !chance_one_in(chance, 4);  // as the model repository has it
  account->honest = round->honest && interface == INTERFACE_TOKENS;
  account->names_feed = chance_one_in(chance, 10);
  hand_over(round, triton_request(chance, account), interface);
}

// What Triton does with the requests of feeds: it hands them over, refuses them, or keeps them for later.
static void act_of_triton(struct round *round, bool keeps) {
  struct chance *chance = &round->chance;
  TRITONBACKEND_Request *triton;
  while (!(keeps && chance_one_in(chance, 3)) && (triton = server_next(&round->server)) != NULL) {
    if (chance_one_in(chance, 8)) {
      server_refuse(triton);
    } else {
      hand_over(round, triton, INTERFACE_TOKENS);
    }
  }
  bool closed;
  struct submission *given_back;
  if (queue_take(&round->queue, &given_back, &closed) != NULL || closed) wrong("the queue has what nobody put there");
  submissions_take_back(&round->delivery.submissions, given_back);
}

static void act_of_clients(struct round *round) {
  struct chance *chance = &round->chance;
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    struct client *client = &round->clients[i];
    if (!chance_one_in(chance, 3)) client_read(client, chance_one_in(chance, 2) ? 1 << 16 : 7);
    if (chance_one_in(chance, 2)) client_request(client, chance, !round->honest && chance_one_in(chance, 30));
    if (chance_one_in(chance, 10)) client_cancel(client, chance_below(chance, client->requests + 2));
    if (chance_one_in(chance, 10)) client_cancel_group(client, chance_below(chance, GROUPS));
    if (chance_one_in(chance, 100)) client_send_garbage(client, chance);
    if (chance_one_in(chance, 100)) client_close(client);
  }
  for (unsigned i = 0; i < round->delivery.feeds.count; i++) {
    delivery_receive(&round->delivery, round->delivery.feeds.feeds[i]);
  }
}

static void play(struct round *round, uint32_t fault_one_in) {
  struct chance *chance = &round->chance;
  bool readable = true;
  for (uint32_t step = 0; readable && step < STEPS; step++) {
    while (round->requests < MAX_REQUESTS && chance_one_in(chance, 2)) add_request(round, fault_one_in);
    struct buffer body = {0};
    frames_step(&body, chance, round->streams, round->admitted);
    if (!round->honest && chance_one_in(chance, 6)) frames_spoil(&body, chance);
    // Of its own size, so that a byte behind it is noticed.
    uint8_t *exact = malloc(body.length + (body.length == 0));
    if (body.length > 0) memcpy(exact, body.data, body.length);
    readable = delivery_take_step(&round->delivery, exact, body.length);
    if (!readable && round->honest) wrong("a step that is as it should be cannot be read");
    free(exact);
    buffer_free(&body);
    if (!readable) break;
    delivery_send(&round->delivery, chance_one_in(chance, 2));
    if (round->requests > 0 && chance_one_in(chance, 8)) {
      round->accounts[chance_below(chance, round->requests)].cancelled = true;
      delivery_check_cancelled(&round->delivery);
    }
    act_of_clients(round);
    act_of_triton(round, true);
    delivery_close_broken_feeds(&round->delivery);
    feeds_tell_statistics(&round->delivery.feeds, round->delivery.requests.count, (uint8_t[16]){0}, 16);
    delivery_send_feeds(&round->delivery);
  }
}

static bool is_open(const struct round *round, uint32_t client) {
  const struct feeds *feeds = &round->delivery.feeds;
  for (unsigned i = 0; i < feeds->count; i++) {
    if (feeds->feeds[i] == round->feeds[client]) return round->clients[client].socket >= 0;
  }
  return false;
}

// Everything that was sent arrives, and has one end.
static void end_requests(struct round *round) {
  struct delivery *delivery = &round->delivery;
  for (bool busy = true; busy;) {
    busy = false;
    for (unsigned i = 0; i < delivery->feeds.count; i++) {
      size_t before = delivery->feeds.feeds[i]->in.length;
      delivery_receive(delivery, delivery->feeds.feeds[i]);
      busy |= delivery->feeds.feeds[i]->in.length != before;
    }
    act_of_triton(round, false);
    delivery_fail_all(delivery, "E2400 EngineProcessDied: by chance");
    act_of_triton(round, false);
    delivery_close_broken_feeds(delivery);
    delivery_send_feeds(delivery);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
      if (!is_open(round, i)) continue;
      client_read(&round->clients[i], 1 << 16);
      busy |= !client_flush(&round->clients[i]) || !feed_is_idle(round->feeds[i]);
    }
  }
}

static void run(uint64_t seed, const char *path) {
  struct round *round = calloc(1, sizeof *round);
  round->chance = chance_of(seed);
  round->honest = seed % 3 == 0;
  round->delivery.to_engine = &round->to_engine;
  pthread_mutex_init(&round->server.lock, NULL);
  round->server.chance = chance_of(chance_next(&round->chance));
  round->server.fault_one_in = seed % 3 == 1 ? 40 : 0;
  if (!queue_open(&round->queue)) wrong("there is no queue");
  TRITONSERVER_Error *error = submissions_open(&round->delivery.submissions, &round->queue);
  if (error != NULL) wrong("submissions are not opened");
  if (!chance_one_in(&round->chance, 20)) {
    submissions_use_model(&round->delivery.submissions, &round->server, "tensorrt_llm");
  }
  if (!feeds_open(&round->delivery.feeds, path, 0.01)) wrong("no feed can listen at %s", path);
  struct buffer declaration = {0};
  feeds_tell_engine(&round->delivery.feeds, STATE_READY, 0, &declaration);
  open_clients(round, path);
  play(round, seed % 3 == 1 ? 40 : 0);
  end_requests(round);
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    if (is_open(round, i) && !round->clients[i].sent_garbage) client_check_ends(&round->clients[i]);
  }
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    if (chance_one_in(&round->chance, 3)) client_close(&round->clients[i]);
  }
  feeds_close_all(&round->delivery.feeds);
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    while (client_read(&round->clients[i], 1 << 16)) continue;
    client_close(&round->clients[i]);
  }
  if (round->delivery.submissions.count > 0 || round->delivery.submissions.waiting > 0) wrong("a submission is left");
  submissions_close(&round->delivery.submissions);
  queue_free(&round->queue);
  server_check(&round->server);
  table_free(&round->delivery.requests);
  buffer_free(&round->to_engine);
  for (uint32_t i = 0; i < round->requests; i++) triton_check(&round->accounts[i]);
  free(round);
}

// What Triton tells is JSON; whatever comes, it is read within its bounds.
static void read_settings(struct chance *chance) {
  char config[] = "{\"a\":[{\"b\":\"}\\\"\"}],\"model_transaction_policy\":{\"decoupled\":true},\"parameters\":"
                  "{\"x\":{\"string_value\":\"1\"},\"engine_dir\":{\"string_value\":\"/\\u00e4\\ud83d\\ude00\\n\\\\\"}}}";
  for (uint32_t times = chance_below(chance, 4); times > 0; times--) {
    config[chance_below(chance, sizeof config - 1)] = "\"\\{}[]:,u\0 1d"[chance_below(chance, 13)];
  }
  char *exact = strdup(config);
  free(parameter_value(exact, "engine_dir"));
  (void)is_decoupled(exact);
  free(exact);
}

// A process that dies once in a while is always started again; one that dies immediately is abandoned.
static void count_restarts(void) {
  struct restarts restarts = {0};
  uint64_t pause, last = 0;
  for (int i = 0; i < 3; i++) buffer_append_u64(&restarts.deaths, now_ns() - 301 * SECOND);
  for (int i = 0; i < 12; i++, last = pause) {
    if (restarts_after_death(&restarts, 10, &pause) != (i < 10)) wrong("death %d is counted wrongly", i);
    if (pause < last || pause > 30 * SECOND) wrong("it is started again after %llu ns", (unsigned long long)pause);
  }
  if (restarts_deaths(&restarts) != 12) wrong("deaths of long ago count");
  buffer_free(&restarts.deaths);
}

// More requests than there are places: one more is refused, with a code.
static void fill_table(void) {
  struct delivery delivery = {0};
  struct request other = {0};
  for (uint32_t i = 0; i < TABLE_PLACES; i++) table_add(&delivery.requests, &other);
  struct chance chance = chance_of(1);
  struct account account = {.decoupled = true};
  static TRITONBACKEND_ModelInstance instance;
  struct request *request = request_new(&instance, triton_request(&chance, &account), INTERFACE_TOKENS, true);
  if (request == NULL || delivery_admit(&delivery, request)) wrong("a table without a place takes a request");
  triton_check(&account);
  if (strcmp(account.code, "E2106") != 0) wrong("a request without a place ends with %s", account.code);
  table_free(&delivery.requests);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  uint64_t seed = strtoull(arguments[1], NULL, 10), rounds = strtoull(arguments[2], NULL, 10);
  char folder[] = "/tmp/bridge-steps-XXXXXX", path[64];
  if (mkdtemp(folder) == NULL) return 1;
  count_restarts();
  fill_table();
  snprintf(path, sizeof path, "%s/feed", folder);
  for (uint64_t i = 0; i < rounds; i++) {
    fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + i));
    struct chance chance = chance_of(seed + i);
    read_settings(&chance);
    run(seed + i, path);
  }
  rmdir(folder);
  return 0;
}
