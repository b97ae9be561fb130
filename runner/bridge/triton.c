#include "triton.h"

#include <stdarg.h>
#include <stdio.h>

void log_text(TRITONSERVER_LogLevel level, const char *file, int line, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  TRITONSERVER_Error *error = TRITONSERVER_LogMessage(level, file, line, text);
  if (error != NULL) TRITONSERVER_ErrorDelete(error);
}

bool log_error(TRITONSERVER_Error *error) {
  if (error == NULL) return true;
  LOG(TRITONSERVER_LOG_ERROR, "engine bridge: %s", TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}
