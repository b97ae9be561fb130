// How often an engine process that dies is started again, and when.
#pragma once

#include <stdbool.h>

#include "buffer.h"

struct restarts {
  struct buffer deaths;  // u64, ns: those that count
};

// Counts a death now. True when the process is to be started again, after `pause` ns.
bool restarts_after_death(struct restarts *restarts, long most, uint64_t *pause);

// The deaths that count.
size_t restarts_deaths(const struct restarts *restarts);
