// The page that the bridge and the runner share; docs/architecture.md holds its layout.
#pragma once

#include <stdbool.h>
#include <stdint.h>

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

static inline uint32_t status_page_consumed(const struct status_page *page, int slot) {
  return page->words[STATUS_SLOTS / 4 + slot];
}
