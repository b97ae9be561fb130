// The existing engines, and which models share them.

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constants.h"
#include "engine_internal.h"

static void engine_free(struct engine *engine) {
  feeds_close_all(&engine->delivery.feeds);
  submissions_close(&engine->delivery.submissions);
  table_free(&engine->delivery.requests);
  buffer_free(&engine->in);
  buffer_free(&engine->out);
  buffer_free(&engine->declaration);
  buffer_free(&engine->restarts.deaths);
  queue_free(&engine->queue);
  settings_free(&engine->settings);
  pthread_mutex_destroy(&engine->lock);
  pthread_cond_destroy(&engine->start_ends);
  free(engine);
}

static bool start_thread(struct engine *engine) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for Triton's own threads
  int failed = pthread_create(&engine->thread, NULL, engine_thread, engine);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = failed;
  return !failed;
}

static TRITONSERVER_Error *engine_start(struct settings settings, struct engine **result) {
  struct engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) abort();
  engine->settings = settings;
  engine->process.socket = -1;
  engine->delivery.feeds.listener = -1;
  engine->delivery.to_engine = &engine->out;
  pthread_mutex_init(&engine->lock, NULL);
  pthread_cond_init(&engine->start_ends, NULL);
  TRITONSERVER_Error *error = submissions_open(&engine->delivery.submissions, &engine->queue);
  if (!queue_open(&engine->queue) ||
      !feeds_open(&engine->delivery.feeds, settings.feed_path, settings.feed_timeout_seconds) ||
      (error == NULL && !start_thread(engine))) {
    char text[TEXT_SIZE];
    snprintf(text, sizeof text, E2406_BRIDGE_MISCONFIGURED, strerror(errno));
    error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text);
  }
  if (error != NULL) engine_free(engine);
  *result = engine;
  return error;
}

static void engine_stop(struct engine *engine) {
  queue_close(&engine->queue);
  pthread_join(engine->thread, NULL);
  engine_free(engine);
}

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;  // guards what follows, and each one's users
static struct engine *engines;

// With the lock held.
static TRITONSERVER_Error *find_or_start(struct settings settings, struct engine **result) {
  for (struct engine *engine = engines; engine != NULL; engine = engine->next) {
    if (!settings_same_engine(&engine->settings, &settings)) continue;
    settings_free(&settings);
    *result = engine;
    return NULL;
  }
  TRITONSERVER_Error *error = engine_start(settings, result);
  if (error != NULL) return error;
  (*result)->next = engines;
  engines = *result;
  return NULL;
}

TRITONSERVER_Error *engine_acquire(struct settings settings, struct engine **result) {
  struct engine *engine;
  pthread_mutex_lock(&engines_lock);
  TRITONSERVER_Error *error = find_or_start(settings, &engine);
  if (error == NULL) engine->users++;
  pthread_mutex_unlock(&engines_lock);
  if (error != NULL) return error;

  pthread_mutex_lock(&engine->lock);
  while (!engine->start_ended) pthread_cond_wait(&engine->start_ends, &engine->lock);
  pthread_mutex_unlock(&engine->lock);
  if (engine->start_error[0] != '\0') {
    error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, engine->start_error);
    engine_release(engine);
    return error;
  }
  *result = engine;
  return NULL;
}

void engine_use_model(struct engine *engine, TRITONSERVER_Server *server, const char *model) {
  pthread_mutex_lock(&engines_lock);
  submissions_use_model(&engine->delivery.submissions, server, model);
  pthread_mutex_unlock(&engines_lock);
}

void engine_submit(struct engine *engine, struct request *request) { queue_put(&engine->queue, request); }

void engine_release(struct engine *engine) {
  pthread_mutex_lock(&engines_lock);
  bool last = --engine->users == 0;
  struct engine **place = &engines;
  while (last && *place != engine) place = &(*place)->next;
  if (last) *place = engine->next;
  pthread_mutex_unlock(&engines_lock);
  if (last) engine_stop(engine);
}
