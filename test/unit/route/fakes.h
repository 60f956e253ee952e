/* SPDX-License-Identifier: MIT */
/* Stands below the router instead of the driver, the order, the heaps and their pools: answers what
 * a test told it to, and writes down what it was asked. Every function that may call a driver
 * checks that no lock is held. */
#ifndef VPMM_TEST_ROUTE_FAKES_H
#define VPMM_TEST_ROUTE_FAKES_H

#include "base/atomic.h"
#include "heap/heap.h"
#include "order/order.h"

#define FAKE_DEVICES 3
#define FAKE_GRANULARITY ((uint64_t)2 << 20)
#define FAKE_DEVICE_BYTES ((uint64_t)1 << 30)
#define FAKE_ROOT_BYTES ((uint64_t)1 << 40)
/* Of the live block at the start of each root. */
#define FAKE_LIVE_BYTES ((uint64_t)12345)

struct vpmm_context {
    uint64_t id;
    int device;
    bool is_gone;
};

struct vpmm_heap {
    struct vpmm_heap_params params;
    uint64_t base;
    uint64_t peers; /* one bit each */
    enum vpmm_status malloc_status, free_status, wait_status;
    enum vpmm_region_state state; /* of everything in the heap's root */
    struct vpmm_request request;  /* the last one, and its stream */
    struct vpmm_stream stream;
    bool has_freed_stream; /* the last free's, and its stream */
    struct vpmm_stream freed_stream;
    uint64_t freed_address, given_up_address, unknown_address;
    uint64_t held;
    struct vpmm_heap_counts counts;
    unsigned n_trims_to_nothing, n_synchronizations;
    uint64_t releasable, trimmed; /* what is complete shows once the heap was reaped */
    bool is_reaped;
    bool is_destroyed;
    uint64_t cached_of; /* the stream whose front cache has the block; 0: none */
    uint64_t habit_of;  /* the stream whose requests have a habit; 0: none */
    uint64_t cache_hits;
    unsigned n_mempool_trims; /* the last one's memory pool and what it was to keep */
    uint32_t trimmed_mempool;
    uint64_t kept_bytes;
    uint64_t kept_by_default, kept_by_made; /* what memory pools are told to keep */
    bool is_large;                          /* some of it may decay */
    unsigned n_decay_looks, n_recording_looks, n_decay_slices, slices_left;
    uint64_t decay_keep_bytes; /* of the last slice */
    uint32_t mempool_live;     /* the only one but the default one that has a live block; 0: none */
};

struct fakes {
    struct vpmm_device_facts facts[FAKE_DEVICES];
    enum vpmm_status facts_status;
    bool can_reach[FAKE_DEVICES][FAKE_DEVICES]; /* device, peer */
    unsigned n_looks;                           /* at regions */
    vpmm_atomic32 n_facts, n_creates;
    enum vpmm_status create_status, add_peer_status, order_status;
    void (*creating)(void);   /* called by heap_create, if set */
    void (*connecting)(void); /* called by heap_add_peer, if set */
    unsigned n_connections;   /* how often heap_add_peer has returned */
    struct vpmm_heap heaps[FAKE_DEVICES];
    /* Context i has the handle &contexts[i], the id 10 + i and the device i; so has the stream with
     * the handle &contexts[i]. */
    struct vpmm_context contexts[FAKE_DEVICES];
    int current; /* context; -1: none */
    enum vpmm_status context_status, stream_status;
    bool is_capturing;
    bool is_relaxed; /* the thread's capture mode */
    enum vpmm_status relax_status;
    bool has_captures;
    bool is_dead;          /* what the driver says of a context that may have ended */
    vpmm_atomic64 gone_id; /* of a context that is gone, and nobody was told; 0: none */
    bool caches;           /* streams are remembered, and what is freed on one is cached */
    char told[512];        /* what the order and the heaps were told about contexts */
};

extern struct fakes fakes;
extern const struct vpmm_driver fake_driver;

/* Everything works: all devices alike, all of them peers, context 0 current. */
void fakes_reset(void);
/* Writes it down in `told`. */
void fakes_tell(const char *what, uint64_t number);
static inline vpmm_context_handle fake_context(int number)
{
    return (vpmm_context_handle)&fakes.contexts[number];
}
static inline vpmm_stream_handle fake_stream(int number)
{
    return (vpmm_stream_handle)&fakes.contexts[number];
}

#endif
