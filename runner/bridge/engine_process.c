#include "engine_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ENGINE_SOCKET = 3, ENDING_MILLISECONDS = 200 };

extern char **environ;

static bool is_named(const char *variable, const char *name) {
  size_t length = strlen(name);
  return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

// Our environment, except what concerns Triton's libraries and how the engine finds its own modules.
static char **engine_environment(const char *engine_path) {
  static char safe_path[] = "PYTHONSAFEPATH=1";
  size_t count = 0;
  while (environ[count] != NULL) count++;
  char **environment = calloc(count + 3, sizeof *environment);
  char *python_path = malloc(strlen(engine_path) + sizeof "PYTHONPATH=");
  if (environment == NULL || python_path == NULL) abort();
  sprintf(python_path, "PYTHONPATH=%s", engine_path);
  size_t used = 0;
  environment[used++] = python_path;
  environment[used++] = safe_path;
  for (size_t i = 0; i < count; i++) {
    if (is_named(environ[i], "PYTHONPATH") || is_named(environ[i], "PYTHONSAFEPATH") ||
        is_named(environ[i], "PYTHONHOME") || is_named(environ[i], "LD_LIBRARY_PATH")) {
      continue;
    }
    environment[used++] = environ[i];
  }
  return environment;
}

static void close_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (long fd = first, end = sysconf(_SC_OPEN_MAX); fd < end; fd++) close((int)fd);
}

// In the child: only what may be called between fork and exec in a process with threads.
static _Noreturn void become_engine(int socket, pid_t parent, char *const *arguments, char *const *environment) {
  sigset_t none;
  sigemptyset(&none);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int nothing = open("/dev/null", O_RDONLY);
  bool ready = getppid() == parent &&  // or it died before prctl
               nothing >= 0 && dup2(nothing, 0) == 0 && dup2(2, 1) == 1;
  if (socket == ENGINE_SOCKET) {
    ready = ready && fcntl(socket, F_SETFD, 0) == 0;
  } else {
    ready = ready && dup2(socket, ENGINE_SOCKET) == ENGINE_SOCKET;
  }
  if (ready) {
    close_from(ENGINE_SOCKET + 1);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(arguments[0], arguments, environment);
  }
  _exit(127);
}

bool engine_process_start(struct engine_process *process, const struct settings *settings) {
  char *arguments[] = {settings->engine_python, "-m",           "runner.engines.process",
                       "--kind",                settings->engine_kind, "--engine-dir",
                       settings->engine_dir,    "--socket-fd",         "3",
                       NULL};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  char **environment = engine_environment(settings->engine_path);
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) become_engine(ends[1], parent, arguments, environment);
  int reason = errno;
  free(environment[0]);
  free(environment);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    errno = reason;
    return false;
  }
  setpgid(pid, pid);  // in both processes: whichever comes first
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  *process = (struct engine_process){.pid = pid, .socket = ends[0]};
  return true;
}

bool engine_process_has_ended(const struct engine_process *process) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void engine_process_end(struct engine_process *process, char *how, size_t size) {
  close(process->socket);
  for (int i = 0; i < ENDING_MILLISECONDS && !engine_process_has_ended(process); i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  bool ended = engine_process_has_ended(process);
  kill(-process->pid, SIGKILL);
  int status = 0;
  while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) continue;
  if (!ended) {
    snprintf(how, size, "it had to be killed");
  } else if (WIFSIGNALED(status)) {
    snprintf(how, size, "it was ended by signal %d", WTERMSIG(status));
  } else {
    snprintf(how, size, "it ended with exit status %d", WEXITSTATUS(status));
  }
  *process = (struct engine_process){.socket = -1};
}
