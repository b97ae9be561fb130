#include "triton_stand_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constants.h"

#define MODEL "tensorrt_llm"

enum { MAX_PARTS = 3, MAX_INPUTS = 6, MAX_OUTPUTS = 5, MAX_PARAMETERS = 4, LONGEST_NAME = 300 };

struct TRITONSERVER_Error {
  char text[512];
};

struct TRITONSERVER_Message {
  char *text;
  size_t size;
};

struct TRITONBACKEND_Input {
  char *name;
  TRITONSERVER_DataType datatype;
  int64_t *shape;
  uint32_t rank, parts;
  uint8_t *data[MAX_PARTS];
  uint64_t sizes[MAX_PARTS];
  TRITONSERVER_MemoryType memory;
};

struct parameter {
  char *name;
  TRITONSERVER_ParameterType type;
  union {
    int64_t number;
    bool truth;
    double real;
    char text[16];
  } value;
};

struct TRITONBACKEND_Request {
  struct account *account;
  TRITONSERVER_InferenceRequest *own;  // the bridge's; NULL: somebody else's
  char *id;
  uint32_t inputs, outputs, parameters;
  TRITONBACKEND_Input *input[MAX_INPUTS];
  char *output[MAX_OUTPUTS];
  struct parameter parameter[MAX_PARAMETERS];
};

struct TRITONSERVER_InferenceRequest {
  TRITONBACKEND_Request backend;
  TRITONSERVER_Server *server;
  TRITONSERVER_InferenceRequest *next;
  TRITONSERVER_InferenceRequestReleaseFn_t release;
  TRITONSERVER_InferenceResponseCompleteFn_t respond;
  void *release_argument, *respond_argument;
  bool is_ours;  // Triton's, until it is released
};

struct TRITONSERVER_InferenceResponse {
  char *error;  // NULL: none
};

struct TRITONSERVER_ResponseAllocator {
  int nothing;
};

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

void wrong(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("wrong: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

static void *filled(size_t size) {
  void *data = malloc(size + (size == 0));
  if (data == NULL) abort();
  memset(data, 0xA5, size);
  return data;
}

// ---- requests

static char *name_of(struct chance *chance, const char *usual) {
  if (!chance_one_in(chance, 40)) return strdup(usual);
  size_t length = chance_below(chance, LONGEST_NAME);
  char *name = filled(length + 1);
  memset(name, 'n', length);
  name[length] = '\0';
  return name;
}

static TRITONBACKEND_Input *new_input(struct chance *chance) {
  static const char *const names[] = {"input_ids", "request_output_len", "text_input", "prompt"};
  TRITONBACKEND_Input *input = calloc(1, sizeof *input);
  input->name = name_of(chance, names[chance_below(chance, 4)]);
  input->datatype = TRITONSERVER_TYPE_INT32;
  input->rank = chance_one_in(chance, 60) ? 256 : chance_below(chance, 4);
  input->shape = filled(input->rank * sizeof *input->shape);
  input->parts = chance_below(chance, MAX_PARTS + 1);
  for (uint32_t i = 0; i < input->parts; i++) {
    input->sizes[i] = chance_one_in(chance, 30) ? 100000 : chance_below(chance, 40);
    input->data[i] = filled(input->sizes[i]);
  }
  input->memory = chance_one_in(chance, 60) ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  return input;
}

static void add_parameter(TRITONBACKEND_Request *request, char *name, TRITONSERVER_ParameterType type,
                          int64_t number) {
  request->parameter[request->parameters++] = (struct parameter){name, type, {.number = number}};
}

TRITONBACKEND_Request *triton_request(struct chance *chance, struct account *account) {
  static const char *const outputs[] = {"output_ids", "sequence_length", "finish_reason", "text_output", "logprobs"};
  TRITONBACKEND_Request *request = calloc(1, sizeof *request);
  request->account = account;
  size_t id = chance_one_in(chance, 100) ? 70000 : chance_below(chance, 50);
  request->id = filled(id + 1);
  request->id[id] = '\0';
  request->inputs = chance_below(chance, MAX_INPUTS + 1);
  for (uint32_t i = 0; i < request->inputs; i++) request->input[i] = new_input(chance);
  while (request->outputs < MAX_OUTPUTS && !chance_one_in(chance, 20)) {
    request->output[request->outputs] = name_of(chance, outputs[request->outputs]);
    request->outputs++;
  }
  if (account->names_feed) {
    bool odd = chance_one_in(chance, 3);
    TRITONSERVER_ParameterType type = odd ? TRITONSERVER_PARAMETER_BOOL : TRITONSERVER_PARAMETER_INT;
    add_parameter(request, strdup(FEED_PARAMETER), type, (int64_t)chance_next(chance) >> chance_below(chance, 64));
  }
  static const TRITONSERVER_ParameterType types[] = {0, 1, 2, 3, 9};
  while (request->parameters < MAX_PARAMETERS && chance_one_in(chance, 3)) {
    TRITONSERVER_ParameterType type = types[chance_below(chance, chance_one_in(chance, 10) ? 5 : 4)];
    add_parameter(request, name_of(chance, "temperature"), type, type == TRITONSERVER_PARAMETER_STRING ? 0x747865 : 1);
  }
  account->made = true;
  return request;
}

static void free_request(TRITONBACKEND_Request *request) {
  for (uint32_t i = 0; i < request->inputs; i++) {
    TRITONBACKEND_Input *input = request->input[i];
    for (uint32_t part = 0; request->own == NULL && part < input->parts; part++) free(input->data[part]);
    free(input->shape);
    free(input->name);
    free(input);
  }
  for (uint32_t i = 0; i < request->outputs; i++) free(request->output[i]);
  for (uint32_t i = 0; i < request->parameters; i++) free(request->parameter[i].name);
  free(request->id);
  if (request->own == NULL) free(request);
}

void triton_check(const struct account *account) {
  if (!account->made) return;
  if (account->releases != 1) wrong("a request was released %u times", account->releases);
  if (account->finals > 1 || (account->finals == 0 && !account->was_faulty)) {
    wrong("a request has ended %u times", account->finals);
  }
}

// A call for the request fails, as its account has it.
static TRITONSERVER_Error *fault(struct account *account) {
  if (account->fault_one_in == 0 || !chance_one_in(&account->chance, account->fault_one_in)) return NULL;
  account->was_faulty = true;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "a call failed by chance");
}

#define FAULT(account)                                 \
  do {                                                 \
    TRITONSERVER_Error *failed_here = fault(account); \
    if (failed_here != NULL) return failed_here;       \
  } while (false)

// ---- errors, messages, log

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *text) {
  (void)code;
  TRITONSERVER_Error *error = calloc(1, sizeof *error);
  snprintf(error->text, sizeof error->text, "%s", text);
  return error;
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error) { free(error); }
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error) { return error->text; }

TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *file, int line, const char *text) {
  if (getenv("SHOW_LOG") != NULL) fprintf(stderr, "%d %s:%d %s\n", (int)level, file, line, text);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message, const char **text, size_t *size) {
  *text = message->text;
  *size = message->size;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message) {
  free(message->text);
  free(message);
  return NULL;
}

// ---- models

uint32_t triton_version[2] = {BACKEND_API_MAJOR, BACKEND_API_MINOR};

TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor) {
  *major = triton_version[0];
  *minor = triton_version[1];
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model, uint32_t version, TRITONSERVER_Message **config) {
  (void)version;
  *config = calloc(1, sizeof **config);
  (*config)->size = strlen(model->config);
  (*config)->text = filled((*config)->size);  // without a zero behind it
  memcpy((*config)->text, model->config, (*config)->size);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name) {
  (void)model;
  *name = MODEL;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *model, TRITONSERVER_Server **server) {
  *server = model->server;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state) {
  *state = model->state;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state) {
  model->state = state;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Model **model) {
  *model = instance->model;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance *instance,
                                                                TRITONBACKEND_Request *request, bool success,
                                                                uint64_t exec_start_ns, uint64_t compute_start_ns,
                                                                uint64_t compute_end_ns, uint64_t exec_end_ns) {
  (void)instance, (void)success, (void)compute_start_ns, (void)compute_end_ns;
  if (exec_start_ns > exec_end_ns) wrong("a request ended before it began");
  return fault(request->account);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *instance,
                                                                     uint64_t batch_size, uint64_t exec_start_ns,
                                                                     uint64_t compute_start_ns, uint64_t compute_end_ns,
                                                                     uint64_t exec_end_ns) {
  (void)instance, (void)batch_size, (void)exec_start_ns, (void)compute_start_ns, (void)compute_end_ns, (void)exec_end_ns;
  return NULL;
}

// ---- what a request holds

TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id) {
  FAULT(request->account);
  *id = request->id;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *count) {
  FAULT(request->account);
  *count = request->inputs;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *request, uint32_t index,
                                                      TRITONBACKEND_Input **input) {
  FAULT(request->account);
  if (index >= request->inputs) wrong("there is no input %u", index);
  *input = request->input[index];
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request, uint32_t *count) {
  FAULT(request->account);
  *count = request->outputs;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request, uint32_t index, const char **name) {
  FAULT(request->account);
  if (index >= request->outputs) wrong("there is no output %u", index);
  *name = request->output[index];
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request, uint32_t *count) {
  FAULT(request->account);
  *count = request->parameters;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request, uint32_t index, const char **key,
                                                   TRITONSERVER_ParameterType *type, const void **value) {
  FAULT(request->account);
  if (index >= request->parameters) wrong("there is no parameter %u", index);
  *key = request->parameter[index].name;
  *type = request->parameter[index].type;
  *value = &request->parameter[index].value;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request, uint32_t flags) {
  if (flags != TRITONSERVER_REQUEST_RELEASE_ALL) wrong("a request is released by halves");
  struct account *account = request->account;
  TRITONSERVER_Error *failed = fault(account);
  TRITONSERVER_InferenceRequest *own = request->own;
  if (own == NULL) {
    free_request(request);
  } else {
    if (!own->is_ours) wrong("a request of the bridge's is released twice");
    own->is_ours = false;
  }
  account->releases++;  // a thread that waits for it reads the account next
  if (own != NULL) own->release(own, TRITONSERVER_REQUEST_RELEASE_ALL, own->release_argument);
  return failed;
}

TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name,
                                                  TRITONSERVER_DataType *datatype, const int64_t **shape,
                                                  uint32_t *rank, uint64_t *size, uint32_t *buffer_count) {
  *name = input->name;
  *datatype = input->datatype;
  *shape = input->shape;
  *rank = input->rank;
  *size = 0;
  for (uint32_t part = 0; part < input->parts; part++) *size += input->sizes[part];
  *buffer_count = input->parts;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
                                              uint64_t *size, TRITONSERVER_MemoryType *memory, int64_t *memory_id) {
  if (index >= input->parts) wrong("there is no part %u of an input", index);
  *buffer = input->data[index];
  *size = input->sizes[index];
  *memory = input->memory;
  *memory_id = 0;
  return NULL;
}

// ---- responses

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

// The bridge's own requests are its callbacks' to answer.
static void respond(TRITONBACKEND_Request *request, uint32_t flags, const char *error, bool has_response) {
  TRITONSERVER_InferenceRequest *own = request->own;
  if (own == NULL) return;
  if (!own->is_ours) wrong("there is a response after a request's release");
  TRITONSERVER_InferenceResponse *response = has_response ? calloc(1, sizeof *response) : NULL;
  if (has_response && error != NULL) response->error = strdup(error);
  own->respond(response, flags, own->respond_argument);
}

static void count_response(struct account *account, uint32_t flags, bool has_response) {
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

// ---- the bridge's own requests

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
