// Random numbers that a seed reproduces.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct chance {
  uint64_t state;
};

static inline struct chance chance_of(uint64_t seed) {
  return (struct chance){seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du};
}

static inline uint64_t chance_next(struct chance *chance) {
  chance->state ^= chance->state << 13;
  chance->state ^= chance->state >> 7;
  chance->state ^= chance->state << 17;
  return chance->state * 0x2545F4914F6CDD1Du;
}

// From 0 to `most` - 1.
static inline uint32_t chance_below(struct chance *chance, uint32_t most) {
  return (uint32_t)((chance_next(chance) >> 32) % most);
}

static inline bool chance_one_in(struct chance *chance, uint32_t many) { return chance_below(chance, many) == 0; }
