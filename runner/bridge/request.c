#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "constants.h"
#include "triton.h"

enum { OUTPUT_IDS = 1, SEQUENCE_LENGTH = 2, FINISH_REASON = 4 };

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

static TRITONSERVER_Error *make_frame(struct request *request) {
  struct buffer *frame = &request->frame;
  const char *triton_id;
  uint32_t input_count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestId(request->triton, &triton_id);
  if (error == NULL) error = TRITONBACKEND_RequestInputCount(request->triton, &input_count);
  if (error != NULL) return error;
  size_t id_length = strlen(triton_id);
  if (id_length > UINT16_MAX) return malformed("the id of the request is too long");
  buffer_append_u32(frame, 0);
  buffer_append_u8(frame, FRAME_REQUEST);
  buffer_append_u64(frame, 0);
  buffer_append_u16(frame, (uint16_t)id_length);
  buffer_append(frame, triton_id, id_length);
  buffer_append_u16(frame, (uint16_t)input_count);
  for (uint32_t i = 0; error == NULL && i < input_count; i++) {
    TRITONBACKEND_Input *input;
    error = TRITONBACKEND_RequestInputByIndex(request->triton, i, &input);
    if (error == NULL) error = append_input(frame, input);
  }
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
  }
  return error;
}

static TRITONSERVER_Error *read_parameters(struct request *request) {
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestParameterCount(request->triton, &count);
  for (uint32_t i = 0; error == NULL && i < count; i++) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    error = TRITONBACKEND_RequestParameter(request->triton, i, &key, &type, &value);
    if (error != NULL || strcmp(key, "consumer_slot") != 0) continue;
    if (type != TRITONSERVER_PARAMETER_INT) return malformed("consumer_slot is not an integer");
    int64_t slot = *(const int64_t *)value;
    if (slot < 0 || slot >= STATUS_SLOT_COUNT) return malformed("there is no such consumer_slot");
    request->consumer_slot = (int)slot;
  }
  return error;
}

struct request *request_new(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *triton) {
  struct request *request = calloc(1, sizeof *request);
  if (request == NULL) abort();
  request->instance = instance;
  request->triton = triton;
  request->consumer_slot = -1;
  request->began = now_ns();
  if (!log_error(TRITONBACKEND_ResponseFactoryNew(&request->factory, triton))) {
    request->factory = NULL;
    request_drop(request);
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

// ---- from tokens to responses

static TRITONSERVER_Error *add_output(TRITONBACKEND_Response *response, const char *name, const int64_t *shape,
                                      uint32_t rank, const void *data, size_t size) {
  TRITONBACKEND_Output *output;
  TRITONSERVER_Error *error =
      TRITONBACKEND_ResponseOutput(response, &output, name, TRITONSERVER_TYPE_INT32, shape, rank);
  if (error != NULL) return error;
  void *place;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  error = TRITONBACKEND_OutputBuffer(output, &place, size, &memory, &memory_id);
  if (error != NULL) return error;
  if (memory == TRITONSERVER_MEMORY_GPU) return malformed("an output goes to the memory of a GPU");
  if (size > 0) memcpy(place, data, size);
  return NULL;
}

bool request_send_tokens(struct request *request, int finish, bool final) {
  TRITONBACKEND_Response *response;
  if (!log_error(TRITONBACKEND_ResponseNewFromFactory(&response, request->factory))) return false;
  int32_t count = (int32_t)(request->tokens.length / sizeof(int32_t));
  int32_t reason = finish;
  TRITONSERVER_Error *error = NULL;
  if (request->outputs & OUTPUT_IDS) {
    error = add_output(response, "output_ids", (int64_t[]){1, 1, count}, 3, request->tokens.data,
                       request->tokens.length);
  }
  if (error == NULL && request->outputs & SEQUENCE_LENGTH) {
    error = add_output(response, "sequence_length", (int64_t[]){1, 1}, 2, &count, sizeof count);
  }
  if (error == NULL && request->outputs & FINISH_REASON) {
    error = add_output(response, "finish_reason", (int64_t[]){1, 1}, 2, &reason, sizeof reason);
  }
  if (!log_error(error)) {
    log_error(TRITONBACKEND_ResponseDelete(response));
    return false;
  }
  request->tokens.length = 0;
  request->sent++;
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
  buffer_free(&request->tokens);
  free(request);
}

void request_finish(struct request *request, int finish) {
  if (request_send_tokens(request, finish, true)) {
    release(request, true);
  } else {
    request_drop(request);
  }
}

// Triton's own code for the error: who can mend it is the first thing that generic clients look at.
static TRITONSERVER_Error_Code error_code(const char *coded_error) {
  if (strncmp(coded_error, "E1", 2) == 0 || strncmp(coded_error, "E2403", 5) == 0) {
    return TRITONSERVER_ERROR_INVALID_ARG;
  }
  if (strncmp(coded_error, "E2404", 5) == 0) return TRITONSERVER_ERROR_UNSUPPORTED;
  if (strncmp(coded_error, "E240", 4) == 0 && strchr("012", coded_error[4]) != NULL) {
    return TRITONSERVER_ERROR_UNAVAILABLE;
  }
  return TRITONSERVER_ERROR_INTERNAL;
}

void request_fail(struct request *request, const char *coded_error) {
  if (request->tokens.length > 0) request_send_tokens(request, 0, false);
  TRITONBACKEND_Response *response;
  if (!log_error(TRITONBACKEND_ResponseNewFromFactory(&response, request->factory))) {
    request_drop(request);
    return;
  }
  TRITONSERVER_Error *error = TRITONSERVER_ErrorNew(error_code(coded_error), coded_error);
  log_error(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
  release(request, false);
}

void request_drop(struct request *request) {
  if (request->factory != NULL) {
    log_error(TRITONBACKEND_ResponseFactorySendFlags(request->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  release(request, false);
}
