// Models, and what everything needs: errors, messages, the log, the end of the program.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct TRITONSERVER_Message {
  char *text;
  size_t size;
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

void *filled(size_t size) {
  void *data = malloc(size + (size == 0));
  if (data == NULL) abort();
  memset(data, 0xA5, size);
  return data;
}

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
