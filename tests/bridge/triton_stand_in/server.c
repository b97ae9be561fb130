// The bridge's own requests.

#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct TRITONSERVER_ResponseAllocator {
  int nothing;
};

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator **allocator,
                                                      TRITONSERVER_ResponseAllocatorAllocFn_t allocate,
                                                      TRITONSERVER_ResponseAllocatorReleaseFn_t release,
                                                      TRITONSERVER_ResponseAllocatorStartFn_t start) {
  (void)allocate, (void)release, (void)start;
  *allocator = calloc(1, sizeof **allocator);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator) {
  free(allocator);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest **request, TRITONSERVER_Server *server,
                                                     const char *model, int64_t version) {
  if (strcmp(model, MODEL) != 0 || version != -1) wrong("a request of the bridge's is for another model");
  struct account *account = calloc(1, sizeof *account);
  pthread_mutex_lock(&server->lock);
  *account = (struct account){.chance = chance_of(chance_next(&server->chance)),
                              .fault_one_in = server->fault_one_in,
                              .decoupled = true,
                              .next = server->accounts};
  server->accounts = account;
  bool stopped = server->stopped;
  server->count += !stopped;
  pthread_mutex_unlock(&server->lock);
  if (stopped) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the model is not there");
  *request = calloc(1, sizeof **request);
  **request = (TRITONSERVER_InferenceRequest){.backend = {.account = account, .own = *request}, .server = server};
  TRITONSERVER_Error *failed = fault(account);
  if (failed != NULL) {
    TRITONSERVER_InferenceRequestDelete(*request);
    *request = NULL;
  }
  return failed;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest *request) {
  if (request->is_ours) wrong("a request is deleted that Triton has");
  free_request(&request->backend);
  pthread_mutex_lock(&request->server->lock);
  request->server->count--;
  pthread_mutex_unlock(&request->server->lock);
  free(request);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest *request, const char *id) {
  FAULT(request->backend.account);
  request->backend.id = strdup(id);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest *request, const char *key,
                                                                 int64_t value) {
  FAULT(request->backend.account);
  if (value <= 0) wrong("a request of the bridge's has the number %lld", (long long)value);
  add_parameter(&request->backend, strdup(key), TRITONSERVER_PARAMETER_INT, value);
  return NULL;
}

static TRITONBACKEND_Input *input_of(TRITONBACKEND_Request *request, const char *name) {
  for (uint32_t i = 0; i < request->inputs; i++) {
    if (strcmp(request->input[i]->name, name) == 0) return request->input[i];
  }
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest *request, const char *name,
                                                          TRITONSERVER_DataType datatype, const int64_t *shape,
                                                          uint64_t rank) {
  FAULT(request->backend.account);
  if (request->backend.inputs == MAX_INPUTS || input_of(&request->backend, name) != NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "there are too many inputs");
  }
  TRITONBACKEND_Input *input = request->backend.input[request->backend.inputs++] = calloc(1, sizeof *input);
  input->name = strdup(name);
  input->datatype = datatype;
  input->rank = (uint32_t)rank;
  input->shape = filled(rank * sizeof *shape);
  memcpy(input->shape, shape, rank * sizeof *shape);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest *request, const char *name,
                                                                 const void *data, size_t size,
                                                                 TRITONSERVER_MemoryType memory, int64_t memory_id) {
  FAULT(request->backend.account);
  (void)memory_id;
  TRITONBACKEND_Input *input = input_of(&request->backend, name);
  if (input == NULL) wrong("there is no input %s", name);
  input->memory = memory;
  input->parts = 1;
  input->data[0] = (uint8_t *)data;  // the bridge's, which it must keep
  input->sizes[0] = size;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest *request,
                                                                    TRITONSERVER_InferenceRequestReleaseFn_t release,
                                                                    void *argument) {
  FAULT(request->backend.account);
  request->release = release;
  request->release_argument = argument;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest *request,
                                                                     TRITONSERVER_ResponseAllocator *allocator,
                                                                     void *allocator_argument,
                                                                     TRITONSERVER_InferenceResponseCompleteFn_t respond,
                                                                     void *argument) {
  FAULT(request->backend.account);
  (void)allocator_argument;
  if (allocator == NULL) wrong("a request of the bridge's has no allocator");
  request->respond = respond;
  request->respond_argument = argument;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse *response) {
  return response->error != NULL ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, response->error) : NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse *response) {
  free(response->error);
  free(response);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(TRITONSERVER_Server *server, TRITONSERVER_InferenceRequest *request,
                                                  TRITONSERVER_InferenceTrace *trace) {
  (void)trace;
  FAULT(request->backend.account);
  if (request->release == NULL || request->respond == NULL) wrong("a request of the bridge's has no callbacks");
  request->is_ours = true;
  request->backend.account->made = true;
  pthread_mutex_lock(&server->lock);
  if (server->last != NULL) {
    server->last->next = request;
  } else {
    server->first = request;
  }
  server->last = request;
  pthread_mutex_unlock(&server->lock);
  return NULL;
}

TRITONBACKEND_Request *server_next(TRITONSERVER_Server *server) {
  pthread_mutex_lock(&server->lock);
  TRITONSERVER_InferenceRequest *request = server->first;
  if (request != NULL) server->first = request->next;
  if (server->first == NULL) server->last = NULL;
  pthread_mutex_unlock(&server->lock);
  return request != NULL ? &request->backend : NULL;
}

void server_refuse(TRITONBACKEND_Request *request) {
  count_response(request->account, TRITONSERVER_RESPONSE_COMPLETE_FINAL, true);
  respond(request, TRITONSERVER_RESPONSE_COMPLETE_FINAL, "Triton refuses it by chance", true);
  TRITONSERVER_Error *failed = TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
  if (failed != NULL) TRITONSERVER_ErrorDelete(failed);
}

struct account *account_of(TRITONBACKEND_Request *request) { return request->account; }

bool server_stop(TRITONSERVER_Server *server) {
  pthread_mutex_lock(&server->lock);
  bool stopped = server->stopped = server->count == 0;
  pthread_mutex_unlock(&server->lock);
  return stopped;
}

void server_check(TRITONSERVER_Server *server) {
  if (server->count != 0) wrong("%u requests of the bridge's are left", server->count);
  for (struct account *account = server->accounts, *next; account != NULL; account = next) {
    next = account->next;
    triton_check(account);
    free(account);
  }
  pthread_mutex_destroy(&server->lock);
}
