#include "submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "constants.h"
#include "triton.h"

enum { LATEST_VERSION = -1 };

// ---- Triton's callbacks, on any thread

static TRITONSERVER_Error *refuse_output(TRITONSERVER_ResponseAllocator *allocator, const char *name, size_t size,
                                         TRITONSERVER_MemoryType memory, int64_t memory_id, void *argument,
                                         void **buffer, void **buffer_argument, TRITONSERVER_MemoryType *actual,
                                         int64_t *actual_id) {
  (void)allocator, (void)name, (void)size, (void)memory, (void)memory_id, (void)argument;
  (void)buffer, (void)buffer_argument, (void)actual, (void)actual_id;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "a feed's request has no outputs in Triton");
}

static TRITONSERVER_Error *release_output(TRITONSERVER_ResponseAllocator *allocator, void *buffer,
                                          void *buffer_argument, size_t size, TRITONSERVER_MemoryType memory,
                                          int64_t memory_id) {
  (void)allocator, (void)buffer, (void)buffer_argument, (void)size, (void)memory, (void)memory_id;
  return NULL;
}

// A response to a feed's request is an error, or nothing but the final flag.
static void take_response(TRITONSERVER_InferenceResponse *response, uint32_t flags, void *argument) {
  (void)flags;
  struct submission *submission = argument;
  if (response == NULL) return;
  TRITONSERVER_Error *error = TRITONSERVER_InferenceResponseError(response);
  if (error != NULL) {  // made for us, whatever Triton's header says
    if (submission->error == NULL) submission->error = strdup(TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
  }
  log_error(TRITONSERVER_InferenceResponseDelete(response));
}

// The last of a request: the model is the bridge's own, and it never responds after it has released one.
static void take_request(TRITONSERVER_InferenceRequest *request, uint32_t flags, void *argument) {
  (void)flags;
  struct submission *submission = argument;
  log_error(TRITONSERVER_InferenceRequestDelete(request));
  queue_give_back(submission->queue, submission);
}

// ---- from a frame to a request

struct cursor {
  const uint8_t *at, *end;
};

static bool take(struct cursor *cursor, void *into, size_t size) {
  if ((size_t)(cursor->end - cursor->at) < size) return false;
  memcpy(into, cursor->at, size);
  cursor->at += size;
  return true;
}

// Adds the tensor at the cursor to the request. False if there is none that can be read.
static bool add_input(TRITONSERVER_InferenceRequest *request, struct cursor *cursor, TRITONSERVER_Error **error) {
  char name[UINT8_MAX + 1] = {0};
  int64_t shape[UINT8_MAX];
  uint8_t name_length, datatype, rank;
  uint32_t size;
  if (!take(cursor, &name_length, 1) || !take(cursor, name, name_length) || strlen(name) != name_length) return false;
  if (!take(cursor, &datatype, 1) || !take(cursor, &rank, 1) || !take(cursor, shape, rank * sizeof *shape)) return false;
  if (!take(cursor, &size, sizeof size) || (size_t)(cursor->end - cursor->at) < size) return false;
  const uint8_t *data = cursor->at;
  cursor->at += size;
  *error = TRITONSERVER_InferenceRequestAddInput(request, name, (TRITONSERVER_DataType)datatype, shape, rank);
  if (*error != NULL) return true;
  *error = TRITONSERVER_InferenceRequestAppendInputData(request, name, data, size, TRITONSERVER_MEMORY_CPU, 0);
  return true;
}

// False for inputs that cannot be read. An error is Triton's own.
static bool add_inputs(TRITONSERVER_InferenceRequest *request, const struct submission *submission,
                       TRITONSERVER_Error **error) {
  struct cursor cursor = {submission->data, submission->data + submission->size};
  uint16_t count;
  if (!take(&cursor, &count, sizeof count)) return false;
  for (; count > 0 && *error == NULL; count--) {
    if (!add_input(request, &cursor, error)) return false;
  }
  return *error != NULL || cursor.at == cursor.end;
}

static TRITONSERVER_Error *prepare(TRITONSERVER_InferenceRequest *request, const struct submissions *submissions,
                                   struct submission *submission) {
  char id[24];
  snprintf(id, sizeof id, "%llu", (unsigned long long)submission->feed_request);
  TRITONSERVER_Error *error = TRITONSERVER_InferenceRequestSetId(request, id);
  if (error == NULL) {
    error = TRITONSERVER_InferenceRequestSetIntParameter(request, FEED_PARAMETER, (int64_t)submission->number);
  }
  if (error == NULL) error = TRITONSERVER_InferenceRequestSetReleaseCallback(request, take_request, submission);
  if (error == NULL) {
    error = TRITONSERVER_InferenceRequestSetResponseCallback(request, submissions->allocator, NULL, take_response,
                                                             submission);
  }
  return error;
}

static void free_submission(struct submission *submission) {
  free(submission->error);
  free(submission);
}

static void tell_refused(struct feed *feed, uint64_t feed_request, const char *text) {
  feed_add(feed, feed_request, ERROR_FINISH, 0, (uint32_t)strlen(text), text, strlen(text));
}

static void put_under_way(struct submissions *submissions, struct submission *submission) {
  if (submissions->last != NULL) {
    submissions->last->next = submission;
  } else {
    submissions->first = submission;
  }
  submissions->last = submission;
  submissions->waiting += submission->size;
  submissions->count++;
}

bool submissions_submit(struct submissions *submissions, struct feed *feed, const uint8_t *body, size_t size) {
  uint64_t feed_request;
  struct cursor cursor = {body, body + size};
  if (!take(&cursor, &feed_request, sizeof feed_request)) return false;
  const char *model = submissions->model;
  if (model == NULL) {
    tell_refused(feed, feed_request, E2401_ENGINE_NOT_READY);
    return true;
  }
  size_t inputs = (size_t)(cursor.end - cursor.at);
  struct submission *submission = malloc(sizeof *submission + inputs);
  if (submission == NULL) abort();
  *submission = (struct submission){.number = ++submissions->last_number,
                                    .feed = feed,
                                    .feed_request = feed_request,
                                    .queue = submissions->queue,
                                    .size = inputs};
  memcpy(submission->data, cursor.at, inputs);

  TRITONSERVER_InferenceRequest *request = NULL;
  bool readable = true;
  TRITONSERVER_Error *error =
      TRITONSERVER_InferenceRequestNew(&request, submissions->server, model, LATEST_VERSION);
  if (error == NULL) error = prepare(request, submissions, submission);
  if (error == NULL) readable = add_inputs(request, submission, &error);
  if (error == NULL && readable) {
    put_under_way(submissions, submission);
    error = TRITONSERVER_ServerInferAsync(submissions->server, request, NULL);
    if (error == NULL) return true;
    submissions_arrived(submissions, submission);
    submissions->count--;
  }
  if (error != NULL) {
    tell_refused(feed, feed_request, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
  }
  if (request != NULL) log_error(TRITONSERVER_InferenceRequestDelete(request));
  free_submission(submission);
  return readable;
}

// ---- those under way

struct submission *submissions_find(const struct submissions *submissions, uint64_t number) {
  struct submission *submission = submissions->first;
  while (submission != NULL && submission->number != number) submission = submission->next;
  return submission;
}

struct submission *submissions_find_of(const struct submissions *submissions, const struct feed *feed,
                                       uint64_t feed_request) {
  struct submission *submission = submissions->first;
  while (submission != NULL && (submission->feed != feed || submission->feed_request != feed_request)) {
    submission = submission->next;
  }
  return submission;
}

void submissions_arrived(struct submissions *submissions, struct submission *submission) {
  struct submission **place = &submissions->first, *before = NULL;
  for (; *place != submission; place = &(*place)->next) before = *place;
  *place = submission->next;
  submission->arrived = true;
  if (submissions->last == submission) submissions->last = before;
  submissions->waiting -= submission->size;
}

void submissions_take_back(struct submissions *submissions, struct submission *given_back) {
  while (given_back != NULL) {
    struct submission *submission = given_back;
    given_back = submission->next_given_back;
    submissions->count--;
    if (!submission->arrived) {
      submissions_arrived(submissions, submission);
      const char *text = submission->error != NULL ? submission->error : "it ended the request without an answer";
      if (submission->feed != NULL) tell_refused(submission->feed, submission->feed_request, text);
    }
    free_submission(submission);
  }
}

void submissions_forget_feed(struct submissions *submissions, const struct feed *feed) {
  for (struct submission *submission = submissions->first; submission != NULL; submission = submission->next) {
    if (submission->feed == feed) submission->feed = NULL;
  }
}

// ---- their beginning and end

TRITONSERVER_Error *submissions_open(struct submissions *submissions, struct request_queue *queue) {
  *submissions = (struct submissions){.queue = queue};
  // From a random number on: clients of Triton cannot guess the number of one that is under way.
  if (getrandom(&submissions->last_number, sizeof submissions->last_number, 0) < 0) abort();
  submissions->last_number >>= 2;  // Triton's parameters are signed
  return TRITONSERVER_ResponseAllocatorNew(&submissions->allocator, refuse_output, release_output, NULL);
}

void submissions_close(struct submissions *submissions) {
  if (submissions->allocator != NULL) log_error(TRITONSERVER_ResponseAllocatorDelete(submissions->allocator));
  free(submissions->model);
}

void submissions_use_model(struct submissions *submissions, TRITONSERVER_Server *server, const char *model) {
  if (submissions->model != NULL) return;
  submissions->server = server;
  submissions->model = strdup(model);
}
