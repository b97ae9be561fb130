// Preloaded: all memory may be locked. NCCL needs that; a stand-in for it locks none.
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int limits_of(int resource, struct rlimit *limits) {
    if (resource == RLIMIT_MEMLOCK) {
        limits->rlim_cur = limits->rlim_max = RLIM_INFINITY;
        return 0;
    }
    return (int)syscall(SYS_prlimit64, 0, resource, (void *)0, limits);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limits) { return limits_of((int)resource, limits); }
int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limits) {
    return limits_of((int)resource, (struct rlimit *)limits);
}
