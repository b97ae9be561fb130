// Whole lives of the bridge: models are loaded, requests run on an engine process, which is this program too, and that
// is hostile in most of them; clients of feeds come and go. `lives SEED COUNT`.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "chance.h"
#include "client.h"
#include "clock.h"
#include "constants.h"
#include "hostile_engine.h"
#include "triton_stand_in.h"

enum { MODELS = 3, MAX_REQUESTS = 40, CLIENTS = 2, SUBMITTERS = 2 };

#define PATIENCE (60 * SECOND)  // in which every request must have ended

struct member {
  pthread_t thread;
  struct chance chance;
  struct life *life;
  const char *path;
  struct client client;
  unsigned first;  // of a submitter's requests
};

struct life {
  bool honest;
  TRITONBACKEND_Model models[MODELS];
  int interfaces[MODELS];
  bool decoupled[MODELS];
  unsigned model_count;
  TRITONSERVER_Server server;
  struct account accounts[MAX_REQUESTS];
  struct member triton, clients[CLIENTS], submitters[SUBMITTERS];
  atomic_bool over, ended;
};

// ---- those who take part

static void *client_thread(void *argument) {
  struct member *self = argument;
  struct chance *chance = &self->chance;
  while (!self->life->over) {
    if (!client_open(&self->client, self->path, self->life->honest)) break;
    bool open = true;
    while (open && !self->life->over) {
      open = client_read(&self->client, chance_one_in(chance, 10) ? 1 << 16 : 64);
      if (chance_one_in(chance, 8)) client_request(&self->client, chance, !self->life->honest && chance_one_in(chance, 9));
      if (chance_one_in(chance, 50)) client_cancel(&self->client, chance_below(chance, self->client.requests + 2));
      if (chance_one_in(chance, 50)) client_cancel_group(&self->client, chance_below(chance, GROUPS));
      if (chance_one_in(chance, 400)) client_send_garbage(&self->client, chance);
      if (chance_one_in(chance, 400)) break;
      usleep(chance_below(chance, 300));
    }
    client_close(&self->client);
  }
  return NULL;
}

// What Triton does with the requests of feeds, on a thread of its own: it hands them over, and refuses some.
static void *triton_thread(void *argument) {
  struct member *self = argument;
  struct life *life = self->life;
  unsigned model = 0;
  while (life->interfaces[model] != INTERFACE_TOKENS || !life->decoupled[model]) {
    if (++model == life->model_count) return NULL;
  }
  TRITONBACKEND_ModelInstance instance = {&life->models[model]};
  while (!life->ended) {
    TRITONBACKEND_Request *request = server_next(&life->server);
    if (request == NULL) {
      usleep(200);
    } else if (chance_one_in(&self->chance, 8)) {
      server_refuse(request);
    } else if (TRITONBACKEND_ModelInstanceExecute(&instance, &request, 1) != NULL) {
      wrong("requests are not taken");
    }
    if (chance_one_in(&self->chance, 10)) usleep(chance_below(&self->chance, 2000));
  }
  return NULL;
}

static void submit(struct member *self, struct account *account) {
  struct chance *chance = &self->chance;
  unsigned model = chance_below(chance, self->life->model_count);
  account->chance = chance_of(chance_next(chance));
  account->fault_one_in = self->life->honest || chance_one_in(chance, 2) ? 0 : 100;
  account->decoupled = self->life->decoupled[model];
  account->honest = self->life->honest && self->life->interfaces[model] == INTERFACE_TOKENS;
  account->names_feed = chance_one_in(chance, 10);
  TRITONBACKEND_ModelInstance instance = {&self->life->models[model]};
  TRITONBACKEND_Request *request = triton_request(chance, account);
  if (TRITONBACKEND_ModelInstanceExecute(&instance, &request, 1) != NULL) wrong("requests are not taken");
}

static void *submitter_thread(void *argument) {
  struct member *self = argument;
  struct chance *chance = &self->chance;
  unsigned end = self->first + chance_below(chance, MAX_REQUESTS / SUBMITTERS + 1);
  for (unsigned number = self->first; number < end; number++) {
    submit(self, &self->life->accounts[number]);
    if (chance_one_in(chance, 4)) self->life->accounts[self->first].cancelled = true;
    usleep(chance_below(chance, 2000));
  }
  return NULL;
}

// ---- a life

static bool load(struct life *life, struct chance *chance, unsigned long long seed, const char *path, char *config) {
  static const char *const interfaces[] = {"tokens", "text", "vllm"};
  unsigned number = life->model_count;
  life->interfaces[number] = (int)chance_below(chance, 3);
  life->decoupled[number] = life->interfaces[number] == INTERFACE_VLLM || !chance_one_in(chance, 4);
  bool waits = seed % BEHAVIOURS != NEVER_READY;
  sprintf(config,
          "{\"model_transaction_policy\":{\"decoupled\":%s},\"parameters\":{\"engine_python\":{\"string_value\":"
          "\"/proc/self/exe\"},\"engine_kind\":{\"string_value\":\"%llu\"},\"engine_dir\":{\"string_value\":\"x\"},"
          "\"engine_path\":{\"string_value\":\"y\"},\"feed_path\":{\"string_value\":\"%s\"},\"interface\":"
          "{\"string_value\":\"%s\"},\"max_restarts\":{\"string_value\":\"%u\"},\"start_timeout_seconds\":"
          "{\"string_value\":\"%s\"},\"feed_timeout_seconds\":{\"string_value\":\"0.05\"}}}",
          life->decoupled[number] ? "true" : "false", seed, path, interfaces[life->interfaces[number]],
          chance_below(chance, 3), waits ? "30" : "0.3");
  life->models[number].config = config;
  life->models[number].server = &life->server;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelInitialize(&life->models[number]);
  if (error == NULL) return true;
  const char *text = TRITONSERVER_ErrorMessage(error);
  if (strncmp(text, "E24", 3) != 0 && seed % BEHAVIOURS != NEVER_READY) wrong("a model is not loaded: %s", text);
  TRITONSERVER_ErrorDelete(error);
  return false;
}

static void wait_for_ends(struct life *life) {
  uint64_t until = now_ns() + PATIENCE;
  for (unsigned i = 0; i < MAX_REQUESTS; i++) {
    while (life->accounts[i].made && life->accounts[i].releases == 0) {
      if (now_ns() > until) wrong("request %u does not end", i);
      usleep(500);
    }
  }
}

static void wait_for_server(struct life *life) {
  uint64_t until = now_ns() + PATIENCE;
  while (!server_stop(&life->server)) {
    if (now_ns() > until) wrong("requests of feeds do not end");
    usleep(500);
  }
}

static void start(struct member *member, struct life *life, struct chance *chance, const char *path,
                  void *(*thread)(void *)) {
  member->life = life;
  member->path = path;
  member->chance = chance_of(chance_next(chance));
  if (pthread_create(&member->thread, NULL, thread, member) != 0) abort();
}

static void live(unsigned long long seed, const char *path) {
  struct chance chance = chance_of(seed);
  struct life *life = calloc(1, sizeof *life);
  char configs[MODELS][1024];
  enum behaviour behaviour = seed % BEHAVIOURS;
  life->honest = behaviour == HONEST || behaviour == ALSO_HONEST;
  pthread_mutex_init(&life->server.lock, NULL);
  life->server.chance = chance_of(chance_next(&chance));
  life->server.fault_one_in = life->honest ? 0 : 200;
  for (unsigned wanted = 1 + chance_below(&chance, MODELS); life->model_count < wanted; life->model_count++) {
    if (!load(life, &chance, seed, path, configs[life->model_count])) break;
  }
  if (life->model_count > 0) {
    start(&life->triton, life, &chance, path, triton_thread);
    for (unsigned i = 0; i < CLIENTS; i++) start(&life->clients[i], life, &chance, path, client_thread);
    for (unsigned i = 0; i < SUBMITTERS; i++) {
      life->submitters[i].first = i * (MAX_REQUESTS / SUBMITTERS);
      start(&life->submitters[i], life, &chance, path, submitter_thread);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) pthread_join(life->submitters[i].thread, NULL);
    // As Triton does it: a model is unloaded when its requests have ended. Nobody waits for those of a hostile engine.
    for (unsigned i = 0; !life->honest && i < MAX_REQUESTS; i++) life->accounts[i].cancelled = true;
    wait_for_ends(life);
    life->over = true;
    for (unsigned i = 0; i < CLIENTS; i++) pthread_join(life->clients[i].thread, NULL);
    wait_for_server(life);
    life->ended = true;
    pthread_join(life->triton.thread, NULL);
  }
  for (unsigned i = 0; i < life->model_count; i++) {
    if (TRITONBACKEND_ModelFinalize(&life->models[i]) != NULL) wrong("a model is not unloaded");
  }
  for (unsigned i = 0; i < MAX_REQUESTS; i++) triton_check(&life->accounts[i]);
  server_check(&life->server);
  if (access(path, F_OK) == 0) wrong("the socket of the feeds is left behind");
  free(life);
}

// ---- what is refused

static void refused(TRITONSERVER_Error *error, const char *code) {
  if (error == NULL) wrong("that should fail with %s", code);
  const char *text = TRITONSERVER_ErrorMessage(error);
  if (strncmp(text, code, strlen(code)) != 0) wrong("this is not %s: %s", code, text);
  TRITONSERVER_ErrorDelete(error);
}

#define PARAMETER(name, value) "\"" name "\":{\"string_value\":\"" value "\"}"
#define ENGINE PARAMETER("engine_python", "/proc/self/exe") "," PARAMETER("engine_kind", "0") "," \
               PARAMETER("engine_dir", "x") "," PARAMETER("engine_path", "y")

static void refuse_versions(void) {
  static const uint32_t versions[][2] = {{0, 99}, {1, 0}, {2, 99}};
  for (unsigned i = 0; i < 3; i++) {
    memcpy(triton_version, versions[i], sizeof triton_version);
    refused(TRITONBACKEND_Initialize(NULL), "E2406 ");
  }
  memcpy(triton_version, (uint32_t[]){1, 99}, sizeof triton_version);
  if (TRITONBACKEND_Initialize(NULL) != NULL) wrong("the bridge does not work with a later Triton");
}

static void refuse_settings(void) {
  static const char *const configs[] = {
      "", "{}", "[]", "{\"parameters\":{}}", "{\"parameters\":[", "{\"parameters\":{" PARAMETER("engine_python", "") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("interface", "words") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("max_restarts", "-1") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("max_restarts", "") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("feed_timeout_seconds", "0") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("start_timeout_seconds", "1 minute") "}}",
      "{\"parameters\":{" ENGINE "," PARAMETER("feed_path", "/nowhere/feed") "}}",
  };
  for (unsigned i = 0; i < sizeof configs / sizeof *configs; i++) {
    TRITONBACKEND_Model model = {.config = configs[i]};
    refused(TRITONBACKEND_ModelInitialize(&model), "E2406 ");
    if (TRITONBACKEND_ModelFinalize(&model) != NULL) wrong("a model that was not loaded is not unloaded");
  }
}

// There are too few files for an engine, one more each time.
static void refuse_without_files(const char *path) {
  char config[1024];
  sprintf(config, "{\"parameters\":{" ENGINE ",\"feed_path\":{\"string_value\":\"%s\"}}}", path);
  int next = dup(0);
  close(next);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  for (unsigned more = 0; more < 4; more++) {
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + more, files.rlim_max});
    TRITONBACKEND_Model model = {.config = config};
    TRITONSERVER_Error *error = TRITONBACKEND_ModelInitialize(&model);
    setrlimit(RLIMIT_NOFILE, &files);
    refused(error, more < 2 ? "E2406 " : "E2407 ");
  }
}

int main(int count, char **arguments) {
  if (count > 4 && strcmp(arguments[1], "-m") == 0) return engine_main(strtoull(arguments[4], NULL, 10));
  if (count != 3) return 2;
  unsigned long long seed = strtoull(arguments[1], NULL, 10), lives = strtoull(arguments[2], NULL, 10);
  char folder[] = "/tmp/bridge-lives-XXXXXX", path[64];
  if (mkdtemp(folder) == NULL) return 1;
  snprintf(path, sizeof path, "%s/feed", folder);
  if (TRITONBACKEND_Initialize(NULL) != NULL) wrong("the bridge does not work with this Triton");
  refuse_versions();
  refuse_settings();
  refuse_without_files(path);
  for (unsigned long long life = seed; life < seed + lives; life++) {
    fprintf(stderr, "seed %llu\n", life);
    live(life, path);
  }
  rmdir(folder);
  return 0;
}
