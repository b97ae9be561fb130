// Opens many event streams at once and counts every token of them: in C, so that the client is not the limit.
//
//     streams HOST PORT PATH STREAMS TOKENS SECONDS [any] < body.json
//
// Sends the same request on each of STREAMS connections, at one instant. The mock's text is the numbers from
// 0 on ("0 1 2 ..."), and after 9999 once more, so that a token that is lost, repeated or reordered is
// noticed immediately; a stream is whole when it ended with token TOKENS - 1. The text is found behind
// "chunk":, "text": or "content":. With `any` the text may be any, and a stream is whole when the server says
// that it had so many tokens.
//
// Prints a JSON object: counts, the gaps between two chunks of a stream (seconds), and for each whole stream the
// seconds from sending to its first chunk and to its last. Ends after SECONDS at the latest.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 1 << 13, READ = 1 << 16, HEAD = 4096, GAPS = 100000, WORDS = 10000 };
#define GAP 1e-4  // s; the width of a class of gaps

static bool any_text;
static long gaps[GAPS];

struct stream {
  int fd, status;       // of HTTP; 0: not known yet
  bool open, in_body, wrong, sent;
  long tokens, chunks;
  long number;          // the one that is being read
  bool in_number;
  double sent_at, first_at, last_at;
  size_t length;        // of `line`
  char line[LINE];
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

// A token is a number and the space before it, so that one is whole when another begins, or the stream ends.
static void end_number(struct stream *stream) {
  if (!stream->in_number) return;
  if (stream->number != stream->tokens % WORDS) stream->wrong = true;
  stream->tokens++;
  stream->in_number = false;
}

static void take_text(struct stream *stream, const char *text, const char *end) {
  for (; text < end; text++) {
    if (*text >= '0' && *text <= '9') {
      stream->number = (stream->in_number ? 10 * stream->number : 0) + (*text - '0');
      stream->in_number = true;
    } else if (*text == ' ') {
      end_number(stream);
    } else {
      stream->wrong = true;
    }
  }
}

static void take_line(struct stream *stream, double time) {
  static const char *const keys[] = {"\"chunk\":\"", "\"text\":\"", "\"content\":\""};
  static const char *const counts[] = {"\"completion_tokens\":", "\"output_token_count\":"};
  char *line = stream->line;
  line[stream->length] = '\0';
  if (strncmp(line, "data: ", 6) != 0) return;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char *text = strstr(line, keys[i]);
    if (text == NULL) continue;
    text += strlen(keys[i]);
    char *end = strchr(text, '"');
    if (end == NULL || end == text) break;
    if (stream->chunks++ == 0) {
      stream->first_at = time;
    } else {
      long class = (long)((time - stream->last_at) / GAP);
      gaps[class < GAPS ? class : GAPS - 1]++;
    }
    stream->last_at = time;
    if (!any_text) take_text(stream, text, end);
    break;
  }
  for (size_t i = 0; any_text && i < sizeof counts / sizeof *counts; i++) {
    char *found = strstr(line, counts[i]);
    if (found != NULL) stream->tokens = atol(found + strlen(counts[i]));
  }
}

// Lines of the body; what HTTP puts between its chunks is a line that is no event.
static void take(struct stream *stream, const char *data, ssize_t size, double time) {
  for (ssize_t i = 0; i < size; i++) {
    if (data[i] != '\n') {
      if (data[i] != '\r' && stream->length < LINE - 1) stream->line[stream->length++] = data[i];
      continue;
    }
    if (!stream->in_body) {
      stream->line[stream->length] = '\0';
      if (stream->status == 0) sscanf(stream->line, "HTTP/1.%*d %d", &stream->status);
      if (stream->length == 0) stream->in_body = true;
    } else {
      take_line(stream, time);
    }
    stream->length = 0;
  }
}

static void list(const char *name, const struct stream *streams, int count, long tokens, bool to_last) {
  printf(", \"%s\": [", name);
  bool first = true;
  for (int i = 0; i < count; i++) {
    const struct stream *one = &streams[i];
    if (one->wrong || one->tokens != tokens) continue;
    printf("%s%.6g", first ? "" : ", ", (to_last ? one->last_at : one->first_at) - one->sent_at);
    first = false;
  }
  printf("]");
}

static double gap_at(double share) {
  long all = 0, seen = 0;
  for (int i = 0; i < GAPS; i++) all += gaps[i];
  for (int i = 0; i < GAPS; i++) {
    seen += gaps[i];
    if (all > 0 && (double)seen >= share * (double)all) return (i + 1) * GAP;
  }
  return 0;
}

int main(int argc, char **argv) {
  any_text = argc == 8 && strcmp(argv[7], "any") == 0;
  if (argc != 7 && !any_text) {
    fprintf(stderr, "usage: streams HOST PORT PATH STREAMS TOKENS SECONDS [any] < body.json\n");
    return 2;
  }
  int count = atoi(argv[4]);
  long tokens = atol(argv[5]);
  double until = now() + atof(argv[6]);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  static char body[1 << 20], request[(1 << 20) + HEAD];
  size_t body_size = fread(body, 1, sizeof body - 1, stdin);
  // Keep-alive off: the end of the answer is the end of the connection.
  int head = snprintf(request, HEAD,
                      "POST %s HTTP/1.1\r\nHost: %s:%s\r\nAccept: text/event-stream\r\nConnection: close\r\n"
                      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                      argv[3], argv[1], argv[2], body_size);
  memcpy(request + head, body, body_size);
  size_t request_size = (size_t)head + body_size;

  struct stream *streams = calloc((size_t)count, sizeof *streams);
  if (streams == NULL) die("calloc");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) die("HOST is an IPv4 address");
  int epoll = epoll_create1(0);
  double started = now();
  for (int i = 0; i < count; i++) {
    struct stream *one = &streams[i];
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (one->fd < 0) die("socket");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(one->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) die("connect");
    one->open = true;
    one->sent_at = started;
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = (uint32_t)i};
    epoll_ctl(epoll, EPOLL_CTL_ADD, one->fd, &event);
  }

  static char data[READ];
  struct epoll_event events[256];
  int left = count;
  while (left > 0 && now() < until) {
    int ready = epoll_wait(epoll, events, 256, 100);
    for (int i = 0; i < ready; i++) {
      struct stream *one = &streams[events[i].data.u32];
      if (!one->sent) {
        one->sent_at = now();
        one->sent = true;
        // A request is smaller than a fresh socket's buffer.
        if (send(one->fd, request, request_size, MSG_NOSIGNAL) == (ssize_t)request_size) {
          struct epoll_event event = {.events = EPOLLIN, .data.u32 = events[i].data.u32};
          epoll_ctl(epoll, EPOLL_CTL_MOD, one->fd, &event);
          continue;
        }
      } else {
        ssize_t size = recv(one->fd, data, READ, 0);
        if (size > 0) {
          take(one, data, size, now());
          continue;
        }
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      }
      close(one->fd);
      one->open = false;
      end_number(one);
      left--;
    }
  }
  double ended = now();

  int whole = 0, refused = 0, wrong = 0, unfinished = left;
  long all = 0, chunks = 0;
  for (int i = 0; i < count; i++) {
    const struct stream *one = &streams[i];
    all += one->tokens;
    chunks += one->chunks;
    if (one->wrong) wrong++;
    else if (one->tokens == tokens) whole++;
    if (one->status != 200) refused++;
  }
  printf("{\"streams\": %d, \"whole\": %d, \"wrong\": %d, \"refused\": %d, \"unfinished\": %d, \"tokens\": %ld, "
         "\"chunks\": %ld, \"seconds\": %.6f",
         count, whole, wrong, refused, unfinished, all, chunks, ended - started);
  printf(", \"gap\": {\"p50\": %.6g, \"p99\": %.6g}", gap_at(0.5), gap_at(0.99));
  list("time_to_first_token", streams, count, tokens, false);
  list("request_latency", streams, count, tokens, true);
  printf("}\n");
  return 0;
}
