// The requests in flight, by the id under which the engine knows them.
#pragma once

#include "request.h"

enum { TABLE_PLACES = 1 << 20 };

struct request_table {
  struct request **requests;  // NULL if there is none
  uint32_t capacity;
  uint32_t in_use;  // no request is at this place or after it
  uint32_t count;
  uint64_t added;  // since Triton started: makes every id new
};

bool table_is_full(const struct request_table *table);

// Adds the request, for which there is a place, and gives it its id.
void table_add(struct request_table *table, struct request *request);
struct request *table_find(const struct request_table *table, uint64_t id);
void table_remove(struct request_table *table, const struct request *request);
void table_free(struct request_table *table);
