/* SPDX-License-Identifier: MIT */
/* Tells somebody above what a heap, or an object of weights, does with memory. Whoever does it
 * holds no lock of ours, so that the listener may take time, but may be in the middle of an edit,
 * which others wait for. It neither fails nor calls back. NULL: nobody listens. */
#ifndef VPMM_BASE_WATCH_H
#define VPMM_BASE_WATCH_H

#include <stddef.h>
#include <stdint.h>

enum vpmm_watch_kind {
    VPMM_WATCH_GROW,          /* `bytes` of new memory were mapped at `address` */
    VPMM_WATCH_STITCH,        /* `bytes` of memory were moved to `address` */
    VPMM_WATCH_UNMAP,         /* nothing is mapped there any more */
    VPMM_WATCH_RELEASE,       /* `bytes` that were held there went back to the device */
    VPMM_WATCH_HOST_WAIT,     /* a thread waited for work of the device */
    VPMM_WATCH_STREAM_WAIT,   /* stream `stream_id` was made to wait */
    VPMM_WATCH_FREE,          /* the block of `bytes` at `address` died with its context */
    VPMM_WATCH_WEIGHTS_LOAD,  /* copies of `bytes` of weights to `address` were queued */
    VPMM_WATCH_WEIGHTS_EVICT, /* the `bytes` of weights at `address` are there no more */
    VPMM_WATCH_WEIGHTS_PASS,  /* pass `address` of weights ended; `bytes` were queued in it */
};

struct vpmm_watch_event {
    enum vpmm_watch_kind kind;
    int device;
    uint64_t address, bytes, stream_id; /* 0 where it does not apply */
    uint64_t begin_ns;                  /* as now_ns told when it began */
};

struct vpmm_watch {
    void *self;
    uint64_t (*now_ns)(void *self);
    void (*tell)(void *self, const struct vpmm_watch_event *event);
};

static inline uint64_t vpmm_watch_now_ns(const struct vpmm_watch *watch)
{
    return watch ? watch->now_ns(watch->self) : 0;
}

static inline void vpmm_watch_tell(const struct vpmm_watch *watch,
                                   const struct vpmm_watch_event *event)
{
    if (watch)
        watch->tell(watch->self, event);
}

#endif
