// What Triton calls.

#include <stdio.h>
#include <stdlib.h>

#include "constants.h"
#include "engine.h"
#include "triton.h"

struct model {
  struct engine *engine;
  int interface;
  bool decoupled;
};

TRITON_CALL TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  (void)backend;
  uint32_t major, minor;
  TRITONSERVER_Error *error = TRITONBACKEND_ApiVersion(&major, &minor);
  if (error != NULL) return error;
  if (major == BACKEND_API_MAJOR && minor >= BACKEND_API_MINOR) return NULL;
  char reason[128], text[512];
  snprintf(reason, sizeof reason, "Triton's backend API is %u.%u, and the bridge needs %d.%d or a later %d.x", major, minor,
           BACKEND_API_MAJOR, BACKEND_API_MINOR, BACKEND_API_MAJOR);
  snprintf(text, sizeof text, E2406_BRIDGE_MISCONFIGURED, reason);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text);
}

// Feeds carry tokens, as many as come.
static TRITONSERVER_Error *serve_feeds(TRITONBACKEND_Model *model, struct model *state) {
  if (state->interface != INTERFACE_TOKENS || !state->decoupled) return NULL;
  TRITONSERVER_Server *server;
  const char *name;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelServer(model, &server);
  if (error == NULL) error = TRITONBACKEND_ModelName(model, &name);
  if (error == NULL) engine_use_model(state->engine, server, name);
  return error;
}

TRITON_CALL TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  struct settings settings = {0};
  TRITONSERVER_Error *error = settings_read(model, &settings);
  if (error != NULL) {
    settings_free(&settings);
    return error;
  }
  struct model *state = malloc(sizeof *state);
  if (state == NULL) abort();
  state->interface = settings.interface;
  state->decoupled = settings.decoupled;
  error = engine_acquire(settings, &state->engine);
  if (error != NULL) {
    free(state);
    return error;
  }
  error = serve_feeds(model, state);
  if (error == NULL) error = TRITONBACKEND_ModelSetState(model, state);
  if (error != NULL) {
    engine_release(state->engine);
    free(state);
  }
  return error;
}

TRITON_CALL TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  void *state = NULL;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelState(model, &state);
  if (state != NULL) engine_release(((struct model *)state)->engine);
  free(state);
  return error;
}

TRITON_CALL TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                               TRITONBACKEND_Request **requests, uint32_t count) {
  TRITONBACKEND_Model *model;
  void *state;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelInstanceModel(instance, &model);
  if (error == NULL) error = TRITONBACKEND_ModelState(model, &state);
  if (error != NULL) return error;
  const struct model *own = state;
  for (uint32_t i = 0; i < count; i++) {
    struct request *request = request_new(instance, requests[i], own->interface, own->decoupled);
    if (request != NULL) engine_submit(own->engine, request);
  }
  return NULL;
}
