// Responses, and the account of them.

#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct TRITONBACKEND_ResponseFactory {
  TRITONBACKEND_Request *request;
};

struct TRITONBACKEND_Output {
  TRITONBACKEND_Response *response;
  char name[LONGEST_NAME];
  uint8_t *data;
  uint64_t size;
};

struct TRITONBACKEND_Response {
  struct account *account;
  TRITONBACKEND_Request *request;
  uint32_t outputs;
  TRITONBACKEND_Output output[MAX_OUTPUTS + 1];
};

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                                     TRITONBACKEND_Request *request) {
  FAULT(request->account);
  *factory = calloc(1, sizeof **factory);
  (*factory)->request = request;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory) {
  struct account *account = factory->request->account;
  free(factory);
  return fault(account);
}

void respond(TRITONBACKEND_Request *request, uint32_t flags, const char *error, bool has_response) {
  TRITONSERVER_InferenceRequest *own = request->own;
  if (own == NULL) return;
  if (!own->is_ours) wrong("there is a response after a request's release");
  TRITONSERVER_InferenceResponse *response = has_response ? calloc(1, sizeof *response) : NULL;
  if (has_response && error != NULL) response->error = strdup(error);
  own->respond(response, flags, own->respond_argument);
}

void count_response(struct account *account, uint32_t flags, bool has_response) {
  if (account->finals > 0) wrong("there is a response after the last");
  if (has_response && ++account->responses > 1 && !account->decoupled) wrong("a model that is not decoupled responds twice");
  if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) {
    if (!account->decoupled && account->responses != 1) wrong("a model that is not decoupled does not respond");
    account->finals++;
  }
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory, uint32_t flags) {
  struct account *account = factory->request->account;
  FAULT(account);
  if (!account->decoupled && !account->was_faulty) wrong("a model that is not decoupled sends flags");
  if (!account->decoupled) return NULL;
  count_response(account, flags, false);
  respond(factory->request, flags, NULL, false);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *factory, bool *is_cancelled) {
  FAULT(factory->request->account);
  *is_cancelled = factory->request->account->cancelled;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                                         TRITONBACKEND_ResponseFactory *factory) {
  FAULT(factory->request->account);
  *response = calloc(1, sizeof **response);
  (*response)->account = factory->request->account;
  (*response)->request = factory->request;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response) {
  for (uint32_t i = 0; i < response->outputs; i++) free(response->output[i].data);
  free(response);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response, TRITONBACKEND_Output **output,
                                                 const char *name, TRITONSERVER_DataType datatype, const int64_t *shape,
                                                 uint32_t rank) {
  FAULT(response->account);
  (void)datatype;
  for (uint32_t i = 0; i < rank; i++) (void)*(const volatile int64_t *)&shape[i];
  if (response->outputs > MAX_OUTPUTS || strlen(name) >= LONGEST_NAME) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "too many outputs");
  }
  *output = &response->output[response->outputs++];
  (*output)->response = response;
  strcpy((*output)->name, name);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer, uint64_t size,
                                               TRITONSERVER_MemoryType *memory, int64_t *memory_id) {
  FAULT(output->response->account);
  (void)memory_id;
  if (chance_one_in(&output->response->account->chance, 500)) {
    output->response->account->was_faulty = true;
    *memory = TRITONSERVER_MEMORY_GPU;
  }
  *buffer = output->data = filled(size);
  output->size = size;
  return NULL;
}

// The tokens are 0, 1, 2, ... over all responses.
static void check_tokens(struct account *account, const TRITONBACKEND_Output *output) {
  int32_t token;
  for (uint64_t at = 0; at < output->size; at += sizeof token) {
    memcpy(&token, output->data + at, sizeof token);
    if ((uint32_t)token != account->tokens) wrong("token %d comes where %u belongs", token, account->tokens);
    account->tokens++;
  }
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags, TRITONSERVER_Error *error) {
  struct account *account = response->account;
  TRITONSERVER_Error *failed = fault(account);
  if (failed == NULL) count_response(account, flags, true);
  if (error != NULL) memcpy(account->code, error->text, sizeof account->code - 1);
  if (error != NULL && (error->text[0] != 'E' && strcmp(error->text, "the request was cancelled") != 0) &&
      !account->was_faulty && account->honest) {
    wrong("an error without a code: %s", error->text);
  }
  for (uint32_t i = 0; account->honest && !account->was_faulty && i < response->outputs; i++) {
    if (strcmp(response->output[i].name, "output_ids") == 0) check_tokens(account, &response->output[i]);
  }
  if (failed == NULL) respond(response->request, flags, error != NULL ? error->text : NULL, true);
  TRITONBACKEND_ResponseDelete(response);
  return failed;
}
