#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "constants.h"
#include "triton.h"

enum { OUTPUT_IDS = 1, SEQUENCE_LENGTH = 2, FINISH_REASON = 4, TEXT_OUTPUT = 8 };

// ---- from Triton to a REQUEST frame

static TRITONSERVER_Error *malformed(const char *reason) {
  char text[512];
  snprintf(text, sizeof text, E2403_MALFORMED_REQUEST, reason);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

static TRITONSERVER_Error *append_input(struct buffer *frame, TRITONBACKEND_Input *input) {
  const char *name;
  TRITONSERVER_DataType datatype;
  const int64_t *shape;
  uint32_t rank, buffer_count;
  uint64_t size;
  TRITONSERVER_Error *error =
      TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &rank, &size, &buffer_count);
  if (error != NULL) return error;
  size_t name_length = strlen(name);
  if (name_length > UINT8_MAX || rank > UINT8_MAX || size > UINT32_MAX) return malformed("an input is too large");
  buffer_append_u8(frame, (uint8_t)name_length);
  buffer_append(frame, name, name_length);
  buffer_append_u8(frame, (uint8_t)datatype);
  buffer_append_u8(frame, (uint8_t)rank);
  buffer_append(frame, shape, rank * sizeof *shape);
  buffer_append_u32(frame, (uint32_t)size);
  for (uint32_t i = 0; i < buffer_count; i++) {
    const void *data;
    uint64_t part;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    error = TRITONBACKEND_InputBuffer(input, i, &data, &part, &memory, &memory_id);
    if (error != NULL) return error;
    if (memory == TRITONSERVER_MEMORY_GPU) return malformed("an input is in the memory of a GPU");
    buffer_append(frame, data, part);
  }
  return NULL;
}

static void append_scalar(struct buffer *frame, const char *name, TRITONSERVER_DataType datatype,
                          const void *data, uint32_t size) {
  const char prefix[] = PARAMETER_PREFIX;
  bool counted = datatype == TRITONSERVER_TYPE_BYTES;  // texts have their length before them
  buffer_append_u8(frame, (uint8_t)(sizeof prefix - 1 + strlen(name)));
  buffer_append(frame, prefix, sizeof prefix - 1);
  buffer_append(frame, name, strlen(name));
  buffer_append_u8(frame, (uint8_t)datatype);
  buffer_append_u8(frame, 1);
  buffer_append_u64(frame, 1);
  buffer_append_u32(frame, counted ? size + (uint32_t)sizeof size : size);
  if (counted) buffer_append_u32(frame, size);
  buffer_append(frame, data, size);
}

// A parameter of the request as an input of one element; its name distinguishes it from a real one.
static TRITONSERVER_Error *append_parameter(struct buffer *frame, TRITONBACKEND_Request *triton, uint32_t index,
                                            uint16_t *count) {
  const char *name;
  TRITONSERVER_ParameterType type;
  const void *value;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestParameter(triton, index, &name, &type, &value);
  if (error != NULL || strcmp(name, GROUP_PARAMETER) == 0) return error;
  ++*count;
  if (strlen(name) > UINT8_MAX - sizeof PARAMETER_PREFIX) return malformed("the name of a parameter is too long");
  if (type == TRITONSERVER_PARAMETER_STRING) {
    append_scalar(frame, name, TRITONSERVER_TYPE_BYTES, value, (uint32_t)strlen(value));
  } else if (type == TRITONSERVER_PARAMETER_INT) {
    append_scalar(frame, name, TRITONSERVER_TYPE_INT64, value, sizeof(int64_t));
  } else if (type == TRITONSERVER_PARAMETER_BOOL) {
    append_scalar(frame, name, TRITONSERVER_TYPE_BOOL, value, sizeof(bool));
  } else if (type == TRITONSERVER_PARAMETER_DOUBLE) {
    append_scalar(frame, name, TRITONSERVER_TYPE_FP64, value, sizeof(double));
  } else {
    return malformed("a parameter is neither text nor a number");
  }
  return NULL;
}

static TRITONSERVER_Error *make_frame(struct request *request) {
  struct buffer *frame = &request->frame;
  const char *triton_id;
  uint32_t input_count, parameter_count = 0;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestId(request->triton, &triton_id);
  if (error == NULL) error = TRITONBACKEND_RequestInputCount(request->triton, &input_count);
  if (error == NULL && request->interface == INTERFACE_VLLM) {
    error = TRITONBACKEND_RequestParameterCount(request->triton, &parameter_count);
  }
  if (error != NULL) return error;
  size_t id_length = strlen(triton_id);
  if (id_length > UINT16_MAX) return malformed("the id of the request is too long");
  buffer_append_u32(frame, 0);
  buffer_append_u8(frame, FRAME_REQUEST);
  buffer_append_u64(frame, 0);
  buffer_append_u8(frame, (uint8_t)request->interface);
  buffer_append_u16(frame, (uint16_t)id_length);
  buffer_append(frame, triton_id, id_length);
  uint16_t count = (uint16_t)input_count;
  size_t count_at = frame->length;
  buffer_append_u16(frame, 0);
  for (uint32_t i = 0; error == NULL && i < input_count; i++) {
    TRITONBACKEND_Input *input;
    error = TRITONBACKEND_RequestInputByIndex(request->triton, i, &input);
    if (error == NULL) error = append_input(frame, input);
  }
  for (uint32_t i = 0; error == NULL && i < parameter_count; i++) {
    error = append_parameter(frame, request->triton, i, &count);
  }
  memcpy(frame->data + count_at, &count, sizeof count);
  uint32_t length = (uint32_t)(frame->length - sizeof length);
  memcpy(frame->data, &length, sizeof length);
  return error;
}

static TRITONSERVER_Error *read_outputs(struct request *request) {
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestOutputCount(request->triton, &count);
  for (uint32_t i = 0; error == NULL && i < count; i++) {
    const char *name;
    error = TRITONBACKEND_RequestOutputName(request->triton, i, &name);
    if (error != NULL) break;
    if (strcmp(name, "output_ids") == 0) request->outputs |= OUTPUT_IDS;
    if (strcmp(name, "sequence_length") == 0) request->outputs |= SEQUENCE_LENGTH;
    if (strcmp(name, "finish_reason") == 0) request->outputs |= FINISH_REASON;
    if (strcmp(name, "text_output") == 0) request->outputs |= TEXT_OUTPUT;
  }
  return error;
}

// Only the bridge itself sets FEED_PARAMETER: nobody else can guess the number of a submission that is under way.
static TRITONSERVER_Error *read_parameters(struct request *request) {
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestParameterCount(request->triton, &count);
  for (uint32_t i = 0; error == NULL && i < count; i++) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    error = TRITONBACKEND_RequestParameter(request->triton, i, &key, &type, &value);
    if (error != NULL) break;
    int64_t number = type == TRITONSERVER_PARAMETER_INT ? *(const int64_t *)value : 0;
    if (strcmp(key, GROUP_PARAMETER) == 0) request->group = (uint64_t)number;
    if (strcmp(key, FEED_PARAMETER) != 0) continue;
    if (number <= 0 || !request->decoupled || request->interface != INTERFACE_TOKENS) return malformed(NO_SUBMISSION);
    request->submission = (uint64_t)number;
  }
  return error;
}

struct request *request_new(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *triton,
                            int interface, bool decoupled) {
  struct request *request = calloc(1, sizeof *request);
  if (request == NULL) abort();
  request->instance = instance;
  request->triton = triton;
  request->interface = interface;
  request->decoupled = decoupled;
  request->began = now_ns();
  if (!log_error(TRITONBACKEND_ResponseFactoryNew(&request->factory, triton))) {
    request->factory = NULL;
    request_end(request, false);
    return NULL;
  }
  TRITONSERVER_Error *error = make_frame(request);
  if (error == NULL) error = read_outputs(request);
  if (error == NULL) error = read_parameters(request);
  if (error != NULL) {
    request_fail(request, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return NULL;
  }
  return request;
}

// ---- from output to responses

// Where an output's bytes go.
static TRITONSERVER_Error *new_output(TRITONBACKEND_Response *response, const char *name,
                                      TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t rank,
                                      size_t size, void **place) {
  TRITONBACKEND_Output *output;
  TRITONSERVER_Error *error = TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape, rank);
  if (error != NULL) return error;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  error = TRITONBACKEND_OutputBuffer(output, place, size, &memory, &memory_id);
  if (error != NULL) return error;
  return memory == TRITONSERVER_MEMORY_GPU ? malformed("an output goes to the memory of a GPU") : NULL;
}

static TRITONSERVER_Error *add_number(TRITONBACKEND_Response *response, const char *name, int32_t number) {
  void *place;
  TRITONSERVER_Error *error =
      new_output(response, name, TRITONSERVER_TYPE_INT32, (int64_t[]){1, 1}, 2, sizeof number, &place);
  if (error == NULL) memcpy(place, &number, sizeof number);
  return error;
}

static TRITONSERVER_Error *add_tokens(TRITONBACKEND_Response *response, const struct buffer *tokens) {
  void *place;
  int64_t count = (int64_t)(tokens->length / sizeof(int32_t));
  TRITONSERVER_Error *error = new_output(response, "output_ids", TRITONSERVER_TYPE_INT32,
                                         (int64_t[]){1, 1, count}, 3, tokens->length, &place);
  if (error == NULL && tokens->length > 0) memcpy(place, tokens->data, tokens->length);
  return error;
}

static TRITONSERVER_Error *add_text(TRITONBACKEND_Response *response, const struct buffer *text) {
  void *place;
  uint32_t length = (uint32_t)text->length;
  TRITONSERVER_Error *error = new_output(response, "text_output", TRITONSERVER_TYPE_BYTES, (int64_t[]){1, 1}, 2,
                                         sizeof length + length, &place);
  if (error != NULL) return error;
  memcpy(place, &length, sizeof length);
  if (length > 0) memcpy((uint8_t *)place + sizeof length, text->data, length);
  return NULL;
}

static bool is_asked(struct request *request, const char *wanted) {
  uint32_t count = 0;
  if (!log_error(TRITONBACKEND_RequestOutputCount(request->triton, &count))) return false;
  for (uint32_t i = 0; i < count; i++) {
    const char *name;
    if (log_error(TRITONBACKEND_RequestOutputName(request->triton, i, &name)) && strcmp(name, wanted) == 0) return true;
  }
  return false;
}

static TRITONSERVER_Error *broken_output(const char *how) {
  char text[128];
  snprintf(text, sizeof text, "the engine process sent an output that %s", how);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text);
}

// The tensors that the engine has made, in the form in which a REQUEST holds its own.
static TRITONSERVER_Error *add_tensors(struct request *request, TRITONBACKEND_Response *response) {
  const uint8_t *at = request->output.data, *end = at + request->output.length;
  while (at < end) {
    char name[UINT8_MAX + 1];
    int64_t shape;
    uint32_t size;
    size_t name_length = *at++;
    if ((size_t)(end - at) < name_length + 2 + sizeof shape + sizeof size) return broken_output("is cut off");
    memcpy(name, at, name_length);
    name[name_length] = '\0';
    at += name_length;
    TRITONSERVER_DataType datatype = (TRITONSERVER_DataType)at[0];
    if (at[1] != 1) return broken_output("has more than one dimension");
    memcpy(&shape, at + 2, sizeof shape);
    memcpy(&size, at + 2 + sizeof shape, sizeof size);
    at += 2 + sizeof shape + sizeof size;
    if ((size_t)(end - at) < size) return broken_output("is cut off");
    if (is_asked(request, name)) {
      void *place;
      TRITONSERVER_Error *error = new_output(response, name, datatype, &shape, 1, size, &place);
      if (error != NULL) return error;
      memcpy(place, at, size);
    }
    at += size;
  }
  return NULL;
}

static TRITONSERVER_Error *add_outputs(struct request *request, TRITONBACKEND_Response *response, int finish) {
  if (request->interface == INTERFACE_VLLM) return add_tensors(request, response);
  TRITONSERVER_Error *error = NULL;
  if (request->outputs & OUTPUT_IDS) error = add_tokens(response, &request->output);
  if (error == NULL && request->outputs & SEQUENCE_LENGTH) {
    error = add_number(response, "sequence_length", (int32_t)(request->output.length / sizeof(int32_t)));
  }
  if (error == NULL && request->outputs & TEXT_OUTPUT) error = add_text(response, &request->output);
  if (error == NULL && request->outputs & FINISH_REASON) error = add_number(response, "finish_reason", finish);
  return error;
}

bool request_send_output(struct request *request, int finish, bool final) {
  TRITONBACKEND_Response *response;
  if (!log_error(TRITONBACKEND_ResponseNewFromFactory(&response, request->factory))) return false;
  if (!log_error(add_outputs(request, response, finish))) {
    log_error(TRITONBACKEND_ResponseDelete(response));
    return false;
  }
  request->output.length = 0;
  request->sent_at = now_ns();
  return log_error(
      TRITONBACKEND_ResponseSend(response, final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, NULL));
}

bool request_is_cancelled(struct request *request) {
  bool cancelled = false;
  return log_error(TRITONBACKEND_ResponseFactoryIsCancelled(request->factory, &cancelled)) && cancelled;
}

static void release(struct request *request, bool success) {
  uint64_t ended = now_ns();
  log_error(TRITONBACKEND_ModelInstanceReportStatistics(request->instance, request->triton, success,
                                                        request->began, request->began, ended, ended));
  log_error(TRITONBACKEND_ModelInstanceReportBatchStatistics(request->instance, 1, request->began,
                                                             request->began, ended, ended));
  if (request->factory != NULL) log_error(TRITONBACKEND_ResponseFactoryDelete(request->factory));
  log_error(TRITONBACKEND_RequestRelease(request->triton, TRITONSERVER_REQUEST_RELEASE_ALL));
  buffer_free(&request->frame);
  buffer_free(&request->output);
  free(request);
}

void request_finish(struct request *request, int finish) {
  if (request_send_output(request, finish, true)) {
    release(request, true);
  } else {
    request_end(request, false);
  }
}

// Triton's own code for the error: generic clients look first at who can fix it.
static TRITONSERVER_Error_Code error_code(const char *coded_error) {
  if (strncmp(coded_error, "E1", 2) == 0 || strncmp(coded_error, "E2403", 5) == 0) {
    return TRITONSERVER_ERROR_INVALID_ARG;
  }
  if (strncmp(coded_error, "E2404", 5) == 0) return TRITONSERVER_ERROR_UNSUPPORTED;
  if (strncmp(coded_error, "E240", 4) == 0 && strchr("012", coded_error[4]) != NULL) {
    return TRITONSERVER_ERROR_UNAVAILABLE;
  }
  if (strncmp(coded_error, "E2105", 5) == 0 || strncmp(coded_error, "E2106", 5) == 0 ||
      strncmp(coded_error, "E2501", 5) == 0) {
    return TRITONSERVER_ERROR_UNAVAILABLE;
  }
  return TRITONSERVER_ERROR_INTERNAL;
}

// The last response is an error. False when there can be no response.
static bool send_error(struct request *request, TRITONSERVER_Error_Code code, const char *text) {
  TRITONBACKEND_Response *response;
  if (!log_error(TRITONBACKEND_ResponseNewFromFactory(&response, request->factory))) return false;
  TRITONSERVER_Error *error = TRITONSERVER_ErrorNew(code, text);
  log_error(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
  return true;
}

void request_fail(struct request *request, const char *coded_error) {
  if (request->decoupled && request->output.length > 0) request_send_output(request, 0, false);
  if (send_error(request, error_code(coded_error), coded_error)) {
    release(request, false);
  } else {
    request_end(request, false);
  }
}

void request_end(struct request *request, bool success) {
  // Only decoupled models may end a request without a response.
  bool told = request->factory != NULL && !request->decoupled &&
              send_error(request, TRITONSERVER_ERROR_CANCELLED, "the request was cancelled");
  if (request->factory != NULL && !told) {
    log_error(TRITONBACKEND_ResponseFactorySendFlags(request->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  release(request, success);
}
