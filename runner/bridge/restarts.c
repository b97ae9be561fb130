#include "restarts.h"

#include <string.h>

#include "clock.h"

#define WINDOW (300 * SECOND)
#define FIRST_PAUSE (100 * MILLISECOND)

enum { MAX_DOUBLINGS = 8 };

bool restarts_after_death(struct restarts *restarts, long most, uint64_t *pause) {
  uint64_t now = now_ns(), oldest;
  buffer_append_u64(&restarts->deaths, now);
  while (memcpy(&oldest, restarts->deaths.data, sizeof oldest), now - oldest > WINDOW) {
    buffer_drop_front(&restarts->deaths, sizeof oldest);
  }
  size_t count = restarts_deaths(restarts);
  *pause = FIRST_PAUSE << (count - 1 < MAX_DOUBLINGS ? count - 1 : MAX_DOUBLINGS);
  return count <= (size_t)most;
}

size_t restarts_deaths(const struct restarts *restarts) { return restarts->deaths.length / sizeof(uint64_t); }
