// Finds single values in a model configuration: Triton gives a backend its parameters as JSON, and in no
// other form. Triton made it, so it is assumed to be valid.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n,:"); }

// `at` is at an opening quote; returns what follows the closing one.
static const char *skip_string(const char *at) {
  for (at++; *at != '\0' && *at != '"'; at++) {
    if (*at == '\\' && at[1] != '\0') at++;
  }
  return *at == '"' ? at + 1 : at;
}

static const char *skip_value(const char *at) {
  if (*at == '"') return skip_string(at);
  if (*at != '{' && *at != '[') return at + strcspn(at, ",]} \t\r\n");
  int depth = 0;
  while (*at != '\0') {
    if (*at == '"') {
      at = skip_string(at);
      continue;
    }
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    at++;
    if (depth == 0) break;
  }
  return at;
}

// The value of member `key` of the object at `object`, or NULL.
static const char *member(const char *object, const char *key) {
  if (object == NULL || *object != '{') return NULL;
  size_t length = strlen(key);
  const char *at = skip_space(object + 1);
  while (*at == '"') {
    const char *name = at + 1;
    at = skip_string(at);
    bool found = (size_t)(at - name) == length + 1 && memcmp(name, key, length) == 0;
    at = skip_space(at);
    if (found) return at;
    at = skip_space(skip_value(at));
  }
  return NULL;
}

static char *append_utf8(char *out, uint32_t point) {
  if (point < 0x80) {
    *out++ = (char)point;
  } else if (point < 0x800) {
    *out++ = (char)(0xC0 | point >> 6);
    *out++ = (char)(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    *out++ = (char)(0xE0 | point >> 12);
    *out++ = (char)(0x80 | (point >> 6 & 0x3F));
    *out++ = (char)(0x80 | (point & 0x3F));
  } else {
    *out++ = (char)(0xF0 | point >> 18);
    *out++ = (char)(0x80 | (point >> 12 & 0x3F));
    *out++ = (char)(0x80 | (point >> 6 & 0x3F));
    *out++ = (char)(0x80 | (point & 0x3F));
  }
  return out;
}

// The four hexadecimal digits at `at`; moves past those that are there.
static uint32_t read_hex(const char **at) {
  char digits[5] = {0};
  strncpy(digits, *at, 4);
  *at += strlen(digits);
  return (uint32_t)strtoul(digits, NULL, 16);
}

static char *unescape(const char *at) {
  char *text = malloc(strlen(at) + 1);  // an escape is never shorter than what it means
  if (text == NULL) abort();
  char *out = text;
  for (at++; *at != '\0' && *at != '"';) {
    if (*at != '\\') {
      *out++ = *at++;
      continue;
    }
    static const char names[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    char escape = at[1];
    if (escape == '\0') break;
    at += 2;
    const char *found = strchr(names, escape);
    if (escape == 'u') {
      uint32_t point = read_hex(&at);
      if (point >= 0xD800 && point < 0xDC00 && at[0] == '\\' && at[1] == 'u') {
        at += 2;
        point = 0x10000 + ((point - 0xD800) << 10) + (read_hex(&at) - 0xDC00);
      }
      out = append_utf8(out, point);
    } else {
      *out++ = found != NULL ? meanings[found - names] : escape;
    }
  }
  *out = '\0';
  return text;
}

bool is_decoupled(const char *config) {
  const char *value = member(member(skip_space(config), "model_transaction_policy"), "decoupled");
  return value != NULL && *value == 't';
}

char *parameter_value(const char *config, const char *key) {
  const char *value = member(member(member(skip_space(config), "parameters"), key), "string_value");
  return value != NULL && *value == '"' ? unescape(value) : NULL;
}
