// Small helpers for Triton's errors and its log.
#pragma once

#include "triton_abi.h"

#define LOG(level, ...) log_text(level, __FILE_NAME__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 4, 5))) void log_text(TRITONSERVER_LogLevel level, const char *file, int line,
                                                    const char *format, ...);

// Logs an error that nobody else can be told about, and deletes it. True when there was none.
bool log_error(TRITONSERVER_Error *error);
