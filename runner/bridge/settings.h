// The parameters of the model, from its config.pbtxt.
#pragma once

#include <stdbool.h>

#include "triton_abi.h"

struct settings {
  int interface;   // of the requests to the model
  bool decoupled;  // whether they may have several responses
  char *engine_python;
  char *engine_kind;
  char *engine_dir;
  char *engine_path;
  char *feed_path;  // NULL: no feeds
  double feed_timeout_seconds;  // within which a feed's client must read something
  double start_timeout_seconds;
  long max_restarts;
};

// Reads the settings from the model's configuration; returns an error with a code, or NULL.
TRITONSERVER_Error *settings_read(TRITONBACKEND_Model *model, struct settings *settings);
void settings_free(struct settings *settings);

// Whether both describe the same engine, whatever the interface.
bool settings_same_engine(const struct settings *one, const struct settings *other);

// Whether a model configuration, as JSON, lets a request have several responses.
bool is_decoupled(const char *config);

// The string value of parameter `key` in a model configuration as JSON, to be freed, or NULL.
char *parameter_value(const char *config, const char *key);
