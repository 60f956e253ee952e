/* SPDX-License-Identifier: MIT */
/* Every byte that this library writes for somebody to read goes through here. The program notices
 * nothing of a write that fails: no SIGPIPE, SIGXFSZ or SIGTTOU reaches it, its thread is not
 * cancelled in the middle, errno stays, and a reader that does not read is waited for only as long
 * as the caller allows. Any thread; safe in a signal handler. */
#ifndef VPMM_BASE_WRITE_H
#define VPMM_BASE_WRITE_H

#include <stddef.h>
#include <stdint.h>

/* Between raise and lower the calling thread gets none of these signals, and what the calls in
 * between caused is gone afterwards. One that was waiting before still waits. */
struct vpmm_shield {
    uint64_t blocked; /* what the thread blocked before */
    uint64_t waiting; /* what waited for it before */
    int number;       /* errno before */
    _Bool is_up, could_be_cancelled;
};

/* False: the system refuses it. Nothing that could raise a signal may be called then. */
_Bool vpmm_shield_raise(struct vpmm_shield *shield);
/* Leaves errno as it is. */
void vpmm_shield_lower(struct vpmm_shield *shield);

/* Writes all of it to `fd`. A pipe, socket or terminal that takes nothing for `patience_ms` is
 * given up, and what was not written is lost. False: not everything was written. */
_Bool vpmm_write(int fd, const void *bytes, size_t n_bytes, unsigned patience_ms);

#endif
