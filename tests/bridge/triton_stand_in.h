// Triton's side of the bridge without Triton: models, requests and their responses, with an account of each request.
// What Triton does not allow (a second end, a response after it, memory that is its own again) ends the program.
#pragma once

#include <pthread.h>
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
  bool names_feed;         // as no client may
  uint32_t tokens;  // that came in responses
  bool was_faulty;  // a call failed
  char code[6];     // of the error that it ended with
  bool made;        // whether Triton handed it over
  struct account *next;  // of a server's
  atomic_uint finals, responses, releases;
  atomic_bool cancelled;
};

// Where the bridge's own requests go, and wait until a test takes them.
struct TRITONSERVER_Server {
  pthread_mutex_t lock;  // guards what follows
  struct chance chance;
  uint32_t fault_one_in;
  TRITONSERVER_InferenceRequest *first, *last;
  struct account *accounts;
  unsigned count;  // of requests that exist
  bool stopped;
};

struct TRITONBACKEND_Model {
  TRITONSERVER_Server *server;
  const char *config;
  void *state;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model *model;
};

enum { GROUPS = 4 };  // the numbers with which requests are cancelled together; 0: none

// The version that Triton says it is of.
extern uint32_t triton_version[2];

// A request with inputs, outputs and parameters by chance, most of them as the models have them.
TRITONBACKEND_Request *triton_request(struct chance *chance, struct account *account);

// The bridge's own requests: the next that it gave the server, or NULL; how Triton refuses one.
TRITONBACKEND_Request *server_next(TRITONSERVER_Server *server);
void server_refuse(TRITONBACKEND_Request *request);
struct account *account_of(TRITONBACKEND_Request *request);

// Stops it unless it has requests: from then on it takes none, as when a model is unloaded.
bool server_stop(TRITONSERVER_Server *server);

// Ends the program unless all that the bridge gave the server has ended once, and is deleted.
void server_check(TRITONSERVER_Server *server);

// Ends the program unless a request that was handed over has ended once.
void triton_check(const struct account *account);

// Ends the program with a reason.
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
