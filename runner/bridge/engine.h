// An engine: its process, the thread that talks with it, and the requests that it works on.
#pragma once

#include "request.h"
#include "settings.h"

struct engine;

// Starts the engine and waits until it is loaded. Takes over the settings. Returns an error with a code, or
// NULL and the engine.
TRITONSERVER_Error *engine_start(struct settings settings, struct engine **engine);

// Hands over a request. Never blocks; from now on the engine answers it.
void engine_submit(struct engine *engine, struct request *request);

// Ends the engine, its process and its thread.
void engine_stop(struct engine *engine);
