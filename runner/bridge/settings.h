// The parameters of the model, from its config.pbtxt.
#pragma once

#include <sys/types.h>

#include "triton_abi.h"

struct settings {
  char *engine_python;
  char *engine_kind;
  char *engine_dir;
  char *engine_path;
  char *status_path;  // NULL: no status page
  double start_timeout_seconds;
  long max_restarts;
  pid_t owner_pid;  // 0: none
};

// Reads the settings out of the model's configuration; returns an error with a code, or NULL.
TRITONSERVER_Error *settings_read(TRITONBACKEND_Model *model, struct settings *settings);
void settings_free(struct settings *settings);

// The string value of parameter `key` in a model configuration as JSON, to be freed, or NULL.
char *parameter_value(const char *config, const char *key);
