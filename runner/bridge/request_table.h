// The requests in flight, by the id that the engine knows them by.
#pragma once

#include "request.h"

struct request_table {
  struct request **requests;  // NULL where there is none
  uint32_t capacity;
  uint32_t in_use;  // no request stands at this place or behind
  uint32_t count;
  uint64_t added;  // since Triton started: makes every id new
};

// Adds the request and gives it its id.
void table_add(struct request_table *table, struct request *request);
struct request *table_find(const struct request_table *table, uint64_t id);
void table_remove(struct request_table *table, const struct request *request);
void table_free(struct request_table *table);
