// The engine process: starting it, noticing that it ended, ending it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "settings.h"

struct engine_process {
  pid_t pid;   // 0 when there is none
  int socket;  // our end, non-blocking; -1 when there is none
};

// Starts it. The thread that calls this must live as long as the process. False, with errno, when it cannot.
bool engine_process_start(struct engine_process *process, const struct settings *settings);

// Whether the process has ended; it stays a zombie until engine_process_end.
bool engine_process_has_ended(const struct engine_process *process);

// Closes the socket, kills what is left of the process group and reaps the process. Writes into `how` how it
// ended; a process that is ending by itself gets a moment to do so.
void engine_process_end(struct engine_process *process, char *how, size_t size);
