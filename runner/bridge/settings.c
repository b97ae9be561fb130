#include "settings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constants.h"
#include "triton.h"

static TRITONSERVER_Error *misconfigured(const char *reason) {
  char text[512];
  snprintf(text, sizeof text, E2406_BRIDGE_MISCONFIGURED, reason);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

// `value` stays as it is where the config leaves the parameter out.
static TRITONSERVER_Error *read_number(const char *config, const char *name, double lowest, double *value) {
  char *text = parameter_value(config, name);
  if (text == NULL) return NULL;
  char *end;
  *value = strtod(text, &end);
  bool valid = end != text && *end == '\0' && *value >= lowest;
  free(text);
  if (valid) return NULL;
  char reason[128];
  snprintf(reason, sizeof reason, "the parameter %s of the model is not a number of at least %g", name, lowest);
  return misconfigured(reason);
}

static bool read_interface(char *text, int *interface) {
  const char *names[] = {[INTERFACE_TOKENS] = "tokens", [INTERFACE_TEXT] = "text", [INTERFACE_VLLM] = "vllm"};
  int count = sizeof names / sizeof *names, found = text == NULL ? INTERFACE_TOKENS : 0;
  while (text != NULL && found < count && strcmp(text, names[found]) != 0) found++;
  *interface = found;
  free(text);
  return found < count;
}

static TRITONSERVER_Error *settings_parse(const char *config, struct settings *settings) {
  const struct {
    const char *name;
    char **value;
  } required[] = {
      {"engine_python", &settings->engine_python},
      {"engine_kind", &settings->engine_kind},
      {"engine_dir", &settings->engine_dir},
      {"engine_path", &settings->engine_path},
  };
  for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
    *required[i].value = parameter_value(config, required[i].name);
    if (*required[i].value == NULL || **required[i].value == '\0') {
      char reason[128];
      snprintf(reason, sizeof reason, "the parameter %s of the model is missing", required[i].name);
      return misconfigured(reason);
    }
  }
  settings->decoupled = is_decoupled(config);
  settings->feed_path = parameter_value(config, "feed_path");
  if (!read_interface(parameter_value(config, "interface"), &settings->interface)) {
    return misconfigured("the parameter interface of the model is not one of tokens, text and vllm");
  }

  double restarts = INT_MAX;  // whoever makes it die cannot end it for good
  settings->start_timeout_seconds = 600;
  settings->feed_timeout_seconds = 30;
  TRITONSERVER_Error *error =
      read_number(config, "start_timeout_seconds", 0.001, &settings->start_timeout_seconds);
  if (error == NULL) error = read_number(config, "feed_timeout_seconds", 0.001, &settings->feed_timeout_seconds);
  if (error == NULL) error = read_number(config, "max_restarts", 0, &restarts);
  settings->max_restarts = (long)restarts;
  return error;
}

TRITONSERVER_Error *settings_read(TRITONBACKEND_Model *model, struct settings *settings) {
  TRITONSERVER_Message *message;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelConfig(model, 1, &message);
  if (error != NULL) return error;
  const char *text;
  size_t size;
  error = TRITONSERVER_MessageSerializeToJson(message, &text, &size);
  if (error == NULL) {
    char *config = strndup(text, size);
    if (config == NULL) abort();
    error = settings_parse(config, settings);
    free(config);
  }
  log_error(TRITONSERVER_MessageDelete(message));
  return error;
}

static bool same_text(const char *one, const char *other) {
  return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

bool settings_same_engine(const struct settings *one, const struct settings *other) {
  return same_text(one->engine_python, other->engine_python) && same_text(one->engine_kind, other->engine_kind) &&
         same_text(one->engine_dir, other->engine_dir) && same_text(one->engine_path, other->engine_path) &&
         same_text(one->feed_path, other->feed_path);
}

void settings_free(struct settings *settings) {
  free(settings->engine_python);
  free(settings->engine_kind);
  free(settings->engine_dir);
  free(settings->engine_path);
  free(settings->feed_path);
}
