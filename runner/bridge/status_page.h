// The page that the bridge and the runner share; docs/architecture.md holds its layout.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "constants.h"

struct status_page {
  volatile uint32_t *words;
  bool shared;  // false: nobody asked for a page, and this one is seen by nobody else
};

// Maps the page, making the file when it is not there. False, with errno, when that cannot be done.
bool status_page_open(struct status_page *page, const char *path);
void status_page_close(struct status_page *page);

static inline void status_page_set(struct status_page *page, unsigned offset, uint32_t value) {
  page->words[offset / 4] = value;
}

// What the engine is busy with: so many words of four bytes; those that are not given become 0.
static inline void status_page_set_statistics(struct status_page *page, const uint8_t *words, size_t count) {
  for (size_t i = 0; i < STATUS_STATISTICS_COUNT; i++) {
    uint32_t value = 0;
    if (i < count) memcpy(&value, words + i * sizeof value, sizeof value);
    status_page_set(page, STATUS_STATISTICS + 4 * (unsigned)i, value);
  }
}

static inline uint32_t status_page_consumed(const struct status_page *page, int slot) {
  return page->words[STATUS_SLOTS / 4 + slot];
}
