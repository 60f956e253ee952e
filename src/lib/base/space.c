/* SPDX-License-Identifier: MIT */
/* Tells whether enough address space is left for a pool's metadata. Must not use stdio, which
 * allocates. */
#define _GNU_SOURCE
#include "base/space.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEAST_BYTES ((uint64_t)1 << 30)

/* Of address space in use. */
static uint64_t used_bytes(void)
{
    char text[32] = "";
    uint64_t pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        pages = pages * 10 + (uint64_t)(text[i] - '0');
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool vpmm_space_is_enough(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    uint64_t used = used_bytes();
    return limit.rlim_cur > used && limit.rlim_cur - used >= LEAST_BYTES;
}
