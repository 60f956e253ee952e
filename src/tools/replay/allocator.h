/* SPDX-License-Identifier: MIT */
/* What serves the requests of a replay. One thread. */
#ifndef VPMM_REPLAY_ALLOCATOR_H
#define VPMM_REPLAY_ALLOCATOR_H

#include "base/status.h"
#include "heap/heap.h"
#include "replay/device.h"
#include "replay/replay.h"

#include <stdbool.h>
#include <stdint.h>

struct vpmm_allocator {
    struct vpmm_replay_device *device;
    uint64_t page_bytes, limit_bytes; /* 0: none */
    bool is_look_dear; /* held_bytes takes long: it is to be asked only where it matters */

    /* NO_MEMORY and LIMITED where there is no room for it; anything else is the end. `stream` is
     * not used for cudaMalloc and cudaFree. */
    enum vpmm_status (*take)(struct vpmm_allocator *allocator, uint64_t bytes, uint32_t stream,
                             bool is_sync, uint64_t *address_out);
    enum vpmm_status (*give)(struct vpmm_allocator *allocator, uint64_t address, uint32_t stream,
                             bool is_sync);
    /* Queue the record of the event and the wait for it, as a program that this serves would: the
     * order that they make is seen. */
    enum vpmm_status (*record)(struct vpmm_allocator *allocator, uint32_t event, uint32_t stream);
    enum vpmm_status (*follow)(struct vpmm_allocator *allocator, uint32_t event, uint32_t stream);
    uint64_t (*held_bytes)(struct vpmm_allocator *allocator);
    void (*counts)(const struct vpmm_allocator *allocator, struct vpmm_replay_counts *counts_out);
    /* The modelled price of unmaps that were put off. */
    uint64_t (*owed_ns)(struct vpmm_allocator *allocator);
    /* Gives all back, with nothing live. NULL, or what is wrong with what was left. */
    const char *(*close)(struct vpmm_allocator *allocator);
};

/* NULL after a message. The device outlives them. */
struct vpmm_allocator *vpmm_allocator_pool(struct vpmm_replay_device *device,
                                           const struct vpmm_replay_options *options,
                                           char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);
/* CUDA's own functions, of a device that has them; `options` says which. */
struct vpmm_allocator *vpmm_allocator_bare(struct vpmm_replay_device *device,
                                           const struct vpmm_replay_options *options,
                                           char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);

#endif
