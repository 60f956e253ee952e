/* SPDX-License-Identifier: MIT */
/* Where a trace is replayed: streams, events and queued work by the numbers of a tape, and the seam
 * over the driver with its calls counted. One thread, that which opened it; a context is current
 * there as long as it is open. */
#ifndef VPMM_REPLAY_DEVICE_H
#define VPMM_REPLAY_DEVICE_H

#include "driver/driver.h"
#include "replay/priced.h"
#include "replay/replay.h"
#include "replay/tape.h"

#include <stdbool.h>
#include <stdint.h>

struct vpmm_replay_device {
    char name[128];
    uint64_t total_bytes;
    bool has_work;     /* the work of a tape can be queued */
    bool is_preloaded; /* this library serves what is asked of CUDA's own functions */
    struct vpmm_priced priced;
    struct vpmm_driver driver;

    /* Operations; those that answer with a status do so as the seam's do. */
    void (*close)(struct vpmm_replay_device *device);
    /* Of the stream with that number; NULL stands for none. And of the event. */
    vpmm_stream_handle (*stream)(struct vpmm_replay_device *device, uint32_t number);
    vpmm_event_handle (*event)(struct vpmm_replay_device *device, uint32_t number);
    /* A pass begins, whose first operation was recorded at that time. */
    void (*begin)(struct vpmm_replay_device *device, uint64_t tape_ns);
    /* The recorded time is now that. */
    void (*go_to)(struct vpmm_replay_device *device, uint64_t tape_ns);
    enum vpmm_status (*work)(struct vpmm_replay_device *device, uint32_t stream,
                             uint64_t duration_ns);
    enum vpmm_status (*record)(struct vpmm_replay_device *device, uint32_t event, uint32_t stream);
    enum vpmm_status (*follow)(struct vpmm_replay_device *device, uint32_t event, uint32_t stream);
    /* Lets all queued work run to its end. */
    enum vpmm_status (*drain)(struct vpmm_replay_device *device);
    /* How long the host has waited, since it was opened. */
    uint64_t (*waited_ns)(const struct vpmm_replay_device *device);

    /* CUDA's own functions, NULL where there are none. `is_sync`: cuMemAlloc and cuMemFree, else
     * their stream-ordered forms. NO_MEMORY. */
    enum vpmm_status (*allocate)(struct vpmm_replay_device *device, uint64_t bytes, uint32_t stream,
                                 bool is_sync, uint64_t *address_out);
    enum vpmm_status (*free)(struct vpmm_replay_device *device, uint64_t address, uint32_t stream,
                             bool is_sync);
    /* What CUDA's default memory pool reserves; 0 where nobody can tell. */
    uint64_t (*reserved_bytes)(const struct vpmm_replay_device *device);
};

/* A simulated one of so many bytes, empty. NULL after a message. */
struct vpmm_replay_device *
vpmm_replay_device_sim(const struct vpmm_tape *tape, uint64_t bytes,
                       char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);
/* The GPU with that number, by libcuda.so.1, in its primary context. NULL after a message. */
struct vpmm_replay_device *
vpmm_replay_device_gpu(const struct vpmm_tape *tape, int number,
                       char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);

#endif
