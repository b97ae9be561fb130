// The part of Triton's C ABI that the bridge uses, declared here because Triton's Python wheels ship no
// headers. Facts from triton/core/tritonserver.h and tritonbackend.h; the ABI is stable within major
// version 1, which TRITONBACKEND_Initialize checks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKEND_API_MAJOR 1
#define BACKEND_API_MINOR 19  // of Triton 2.51; has everything below

#define TRITON_CALL __attribute__((visibility("default"))) TRITONSERVER_Error *

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;

typedef enum {
  TRITONSERVER_TYPE_BOOL = 1,
  TRITONSERVER_TYPE_INT32 = 8,
  TRITONSERVER_TYPE_INT64 = 9,
  TRITONSERVER_TYPE_FP64 = 12,
  TRITONSERVER_TYPE_BYTES = 13,
} TRITONSERVER_DataType;
typedef enum { TRITONSERVER_MEMORY_CPU = 0, TRITONSERVER_MEMORY_GPU = 2 } TRITONSERVER_MemoryType;
typedef enum {
  TRITONSERVER_PARAMETER_STRING = 0,
  TRITONSERVER_PARAMETER_INT = 1,
  TRITONSERVER_PARAMETER_BOOL = 2,
  TRITONSERVER_PARAMETER_DOUBLE = 3,
} TRITONSERVER_ParameterType;
typedef enum {
  TRITONSERVER_LOG_INFO = 0,
  TRITONSERVER_LOG_WARN = 1,
  TRITONSERVER_LOG_ERROR = 2,
} TRITONSERVER_LogLevel;
typedef enum {
  TRITONSERVER_ERROR_INTERNAL = 1,
  TRITONSERVER_ERROR_INVALID_ARG = 3,
  TRITONSERVER_ERROR_UNAVAILABLE = 4,
  TRITONSERVER_ERROR_UNSUPPORTED = 5,
  TRITONSERVER_ERROR_CANCELLED = 7,
} TRITONSERVER_Error_Code;
enum { TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1, TRITONSERVER_REQUEST_RELEASE_ALL = 1 };

// Errors, messages, log: an error returned to us is ours to delete.
TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *text);
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error);
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error);
TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *file, int line,
                                            const char *text);
TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message, const char **text,
                                                        size_t *size);
TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message);

// Models and their instances.
TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);
TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model, uint32_t version,
                                              TRITONSERVER_Message **config);
TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name);
TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *model, TRITONSERVER_Server **server);
TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state);
TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *instance,
                                                     TRITONBACKEND_Model **model);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns);

// Requests: what they hold lives until they are released.
TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id);
TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *count);
TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *request, uint32_t index,
                                                      TRITONBACKEND_Input **input);
TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request, uint32_t *count);
TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request, uint32_t index,
                                                    const char **name);
TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request, uint32_t *count);
TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request, uint32_t index,
                                                   const char **key, TRITONSERVER_ParameterType *type,
                                                   const void **value);
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request, uint32_t flags);
TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name,
                                                  TRITONSERVER_DataType *datatype, const int64_t **shape,
                                                  uint32_t *rank, uint64_t *size, uint32_t *buffer_count);
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
                                              uint64_t *size, TRITONSERVER_MemoryType *memory,
                                              int64_t *memory_id);

// Responses: sending one gives it away, whatever comes back.
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                                     TRITONBACKEND_Request *request);
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory);
TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory,
                                                           uint32_t flags);
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *factory,
                                                             bool *is_cancelled);
TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                                         TRITONBACKEND_ResponseFactory *factory);
TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);
TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response,
                                                 TRITONBACKEND_Output **output, const char *name,
                                                 TRITONSERVER_DataType datatype, const int64_t *shape,
                                                 uint32_t rank);
TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer, uint64_t size,
                                               TRITONSERVER_MemoryType *memory, int64_t *memory_id);
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags,
                                               TRITONSERVER_Error *error);

// Requests of our own to the server. The data of one is Triton's until the release callback gives it back; after
// ServerInferAsync has failed, the request is ours again, and no callback comes.
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *name, size_t size, TRITONSERVER_MemoryType memory,
    int64_t memory_id, void *argument, void **buffer, void **buffer_argument, TRITONSERVER_MemoryType *actual,
    int64_t *actual_id);
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_argument, size_t size,
    TRITONSERVER_MemoryType memory, int64_t memory_id);
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorStartFn_t)(TRITONSERVER_ResponseAllocator *allocator,
                                                                       void *argument);
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(TRITONSERVER_InferenceRequest *request, uint32_t flags,
                                                         void *argument);
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(TRITONSERVER_InferenceResponse *response,
                                                           uint32_t flags, void *argument);
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator **allocator,
                                                      TRITONSERVER_ResponseAllocatorAllocFn_t allocate,
                                                      TRITONSERVER_ResponseAllocatorReleaseFn_t release,
                                                      TRITONSERVER_ResponseAllocatorStartFn_t start);
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest **request,
                                                     TRITONSERVER_Server *server, const char *model,
                                                     int64_t version);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest *request);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest *request, const char *id);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest *request,
                                                                 const char *key, int64_t value);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest *request,
                                                          const char *name, TRITONSERVER_DataType datatype,
                                                          const int64_t *shape, uint64_t rank);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest *request,
                                                                 const char *name, const void *data, size_t size,
                                                                 TRITONSERVER_MemoryType memory,
                                                                 int64_t memory_id);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *request, TRITONSERVER_InferenceRequestReleaseFn_t release, void *argument);
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *request, TRITONSERVER_ResponseAllocator *allocator, void *allocator_argument,
    TRITONSERVER_InferenceResponseCompleteFn_t respond, void *argument);
TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse *response);
TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse *response);
TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(TRITONSERVER_Server *server,
                                                  TRITONSERVER_InferenceRequest *request,
                                                  TRITONSERVER_InferenceTrace *trace);

// What Triton finds in our library.
TRITON_CALL TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);
TRITON_CALL TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);
TRITON_CALL TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);
TRITON_CALL TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                               TRITONBACKEND_Request **requests, uint32_t count);
