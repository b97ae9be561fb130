#include "status_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

bool status_page_open(struct status_page *page, const char *path) {
  int flags = path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  int file = -1;
  if (path != NULL) {
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return false;
    if (ftruncate(file, STATUS_SIZE) != 0) {
      int reason = errno;
      close(file);
      errno = reason;
      return false;
    }
  }
  void *address = mmap(NULL, STATUS_SIZE, PROT_READ | PROT_WRITE, flags, file, 0);
  int reason = errno;
  if (file >= 0) close(file);
  errno = reason;
  if (address == MAP_FAILED) return false;
  *page = (struct status_page){.words = address, .shared = path != NULL};
  status_page_set(page, STATUS_MAGIC_AT, STATUS_MAGIC);
  return true;
}

void status_page_close(struct status_page *page) {
  if (page->words != NULL) munmap((void *)page->words, STATUS_SIZE);
  page->words = NULL;
}
