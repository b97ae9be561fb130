// Time: nanoseconds of the monotonic clock.
#pragma once

#include <stdint.h>
#include <time.h>

#define MILLISECOND 1000000ull
#define SECOND (1000 * MILLISECOND)

static inline uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}
