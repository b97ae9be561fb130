// An engine: its process, the thread that talks with it, and the requests that it works on. Models that are
// configured for the same engine share it.
#pragma once

#include "request.h"
#include "settings.h"

struct engine;

// Returns the engine that these settings describe once it is loaded; starts it if no other model has. Takes
// over the settings. Returns an error with a code, or NULL and the engine.
TRITONSERVER_Error *engine_acquire(struct settings settings, struct engine **engine);

// Requests that come over the engine's feeds are for this model of the server's; the first that is told stays.
void engine_use_model(struct engine *engine, TRITONSERVER_Server *server, const char *model);

// Hands over a request. Never blocks; from now on the engine answers it.
void engine_submit(struct engine *engine, struct request *request);

// Ends the engine, its process and its thread, once every model that acquired it has released it.
void engine_release(struct engine *engine);
