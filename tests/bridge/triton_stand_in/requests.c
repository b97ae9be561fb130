// Requests by chance, and what they hold.

#include <stdlib.h>
#include <string.h>

#include "constants.h"
#include "internal.h"

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

void add_parameter(TRITONBACKEND_Request *request, char *name, TRITONSERVER_ParameterType type,
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
  if (chance_one_in(chance, 3)) {
    add_parameter(request, strdup(GROUP_PARAMETER), TRITONSERVER_PARAMETER_INT, chance_below(chance, GROUPS));
  }
  static const TRITONSERVER_ParameterType types[] = {0, 1, 2, 3, 9};
  while (request->parameters < MAX_PARAMETERS && chance_one_in(chance, 3)) {
    TRITONSERVER_ParameterType type = types[chance_below(chance, chance_one_in(chance, 10) ? 5 : 4)];
    add_parameter(request, name_of(chance, "temperature"), type, type == TRITONSERVER_PARAMETER_STRING ? 0x747865 : 1);
  }
  account->made = true;
  return request;
}

void free_request(TRITONBACKEND_Request *request) {
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

TRITONSERVER_Error *fault(struct account *account) {
  if (account->fault_one_in == 0 || !chance_one_in(&account->chance, account->fault_one_in)) return NULL;
  account->was_faulty = true;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "a call failed by chance");
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
