/* SPDX-License-Identifier: MIT */
/* Serves a replay by CUDA's own allocation functions. Must not use a heap of this library. */
#include "replay/allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bare {
    struct vpmm_allocator base;
    bool is_sync;
    int number;          /* of the GPU */
    uint64_t free_bytes; /* of the device before the first request */
};

static struct bare *of(struct vpmm_allocator *allocator)
{
    return (struct bare *)(void *)allocator;
}

static enum vpmm_status take(struct vpmm_allocator *base, uint64_t bytes, uint32_t stream,
                             bool is_sync, uint64_t *address_out)
{
    (void)is_sync;
    return base->device->allocate(base->device, bytes, stream, of(base)->is_sync, address_out);
}

static enum vpmm_status give(struct vpmm_allocator *base, uint64_t address, uint32_t stream,
                             bool is_sync)
{
    (void)is_sync;
    return base->device->free(base->device, address, stream, of(base)->is_sync);
}

static enum vpmm_status look(const struct vpmm_replay_device *device, uint64_t *free_out)
{
    uint64_t total_bytes;
    return device->priced.inner->memory_info(device->priced.inner->self, free_out, &total_bytes);
}

static enum vpmm_status record(struct vpmm_allocator *base, uint32_t event, uint32_t stream)
{
    return base->device->record(base->device, event, stream);
}

static enum vpmm_status follow(struct vpmm_allocator *base, uint32_t event, uint32_t stream)
{
    return base->device->follow(base->device, event, stream);
}

static uint64_t held_bytes(struct vpmm_allocator *base)
{
    uint64_t free_bytes = 0;
    if (!of(base)->is_sync)
        return base->device->reserved_bytes(base->device);
    if (look(base->device, &free_bytes) != VPMM_OK || free_bytes > of(base)->free_bytes)
        return 0;
    return of(base)->free_bytes - free_bytes;
}

static void counts(const struct vpmm_allocator *base, struct vpmm_replay_counts *counts_out)
{
    (void)base;
    memset(counts_out, 0, sizeof *counts_out);
}

static uint64_t owed_ns(struct vpmm_allocator *base)
{
    (void)base;
    return 0;
}

static const char *close_bare(struct vpmm_allocator *base)
{
    if (!of(base)->is_sync)
        (void)base->device->driver.default_pool_trim(base->device->driver.self, of(base)->number);
    free(of(base));
    return NULL;
}

struct vpmm_allocator *vpmm_allocator_bare(struct vpmm_replay_device *device,
                                           const struct vpmm_replay_options *options,
                                           char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct bare *bare = calloc(1, sizeof *bare);
    enum vpmm_status status = bare ? look(device, &bare->free_bytes) : VPMM_NO_METADATA;
    if (status) {
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES,
                       "the GPU does not say how much memory is free: %s",
                       vpmm_status_text(status));
        free(bare);
        return NULL;
    }
    bare->is_sync = options->through == VPMM_REPLAY_MALLOC;
    bare->number = options->gpu;
    bare->base = (struct vpmm_allocator){
        .device = device,
        .is_look_dear = bare->is_sync,
        .take = take,
        .give = give,
        .record = record,
        .follow = follow,
        .held_bytes = held_bytes,
        .counts = counts,
        .owed_ns = owed_ns,
        .close = close_bare,
    };
    return &bare->base;
}
