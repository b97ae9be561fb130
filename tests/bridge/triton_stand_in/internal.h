// What the modules of the stand-in share.
#pragma once

#include <stddef.h>

#include "triton_stand_in.h"

#define MODEL "tensorrt_llm"

enum { MAX_PARTS = 3, MAX_INPUTS = 6, MAX_OUTPUTS = 5, MAX_PARAMETERS = 4, LONGEST_NAME = 300 };

struct TRITONSERVER_Error {
  char text[512];
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

// Memory that is not zero by chance.
void *filled(size_t size);

void add_parameter(TRITONBACKEND_Request *request, char *name, TRITONSERVER_ParameterType type, int64_t number);
void free_request(TRITONBACKEND_Request *request);

// A call for the request fails, as its account has it.
TRITONSERVER_Error *fault(struct account *account);

#define FAULT(account)                                 \
  do {                                                 \
    TRITONSERVER_Error *failed_here = fault(account);  \
    if (failed_here != NULL) return failed_here;       \
  } while (false)

// Ends the program unless the request may have this response.
void count_response(struct account *account, uint32_t flags, bool has_response);

// The bridge's own requests are its callbacks' to answer.
void respond(TRITONBACKEND_Request *request, uint32_t flags, const char *error, bool has_response);
