#include "request_table.h"

#include <stdlib.h>

// An id is a count, and the place in the table.
static uint32_t place_of(uint64_t id) { return id % TABLE_PLACES; }

static uint32_t free_place(struct request_table *table) {
  if (table->count < table->in_use) {
    for (uint32_t place = 0;; place++) {
      if (table->requests[place] == NULL) return place;
    }
  }
  if (table->in_use == table->capacity) {
    table->capacity = table->capacity ? 2 * table->capacity : 64;
    table->requests = realloc(table->requests, table->capacity * sizeof *table->requests);
    if (table->requests == NULL) abort();
  }
  return table->in_use++;
}

bool table_is_full(const struct request_table *table) { return table->count == TABLE_PLACES; }

void table_add(struct request_table *table, struct request *request) {
  uint32_t place = free_place(table);
  table->requests[place] = request;
  table->count++;
  request->id = ++table->added * TABLE_PLACES + place;
}

struct request *table_find(const struct request_table *table, uint64_t id) {
  uint32_t place = place_of(id);
  struct request *request = place < table->in_use ? table->requests[place] : NULL;
  return request != NULL && request->id == id ? request : NULL;
}

void table_remove(struct request_table *table, const struct request *request) {
  table->requests[place_of(request->id)] = NULL;
  table->count--;
  while (table->in_use > 0 && table->requests[table->in_use - 1] == NULL) table->in_use--;
}

void table_free(struct request_table *table) { free(table->requests); }
