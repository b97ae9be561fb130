// Triton's side of the bridge without Triton: models, requests and their responses, with an account of each request.
// What Triton does not allow (a second end, a response after it, memory that is its own again) ends the program.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "chance.h"
#include "triton_abi.h"

// What became of a request; outlives it.
struct account {
  struct chance chance;    // of the faults
  uint32_t fault_one_in;   // calls of the request's fail; 0: none
  bool decoupled, honest;  // honest: its tokens are 0, 1, 2, ...
  uint64_t feed;           // 0: none
  uint64_t feed_request;
  uint32_t tokens;  // that came in responses
  bool was_faulty;  // a call failed
  bool made;        // whether Triton handed it over
  atomic_uint finals, responses, releases;
  atomic_bool cancelled;
};

struct TRITONBACKEND_Model {
  const char *config;
  void *state;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model *model;
};

// The version that Triton says it is of.
extern uint32_t triton_version[2];

// A request with inputs, outputs and parameters by chance, most of them as the models have them. One of a feed when
// the account names it.
TRITONBACKEND_Request *triton_request(struct chance *chance, struct account *account);

// Ends the program unless a request that was handed over has ended once.
void triton_check(const struct account *account);

// Ends the program with a reason.
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
