/* SPDX-License-Identifier: MIT */
/* A scripted driver for the tests of order/: an event is complete when the test says so, every call
 * is counted, any call can be told to fail or to stop in a thread until the test lets it go. Misuse
 * that would harm a real program is counted in `n_misused`, which every test expects to be 0. */
#ifndef VPMM_TEST_ORDER_FAKE_H
#define VPMM_TEST_ORDER_FAKE_H

#include "base/atomic.h"
#include "base/memory.h"
#include "driver/driver.h"
#include "order/order.h"

#include <pthread.h>
#include <stdbool.h>

#define FAKE_CONTEXTS 8
#define FAKE_STREAMS 200
#define FAKE_EVENTS 256

struct fake_context {
    bool is_alive, is_capture_broken;
    uint64_t id; /* new with each life */
    int n_captures;
};

struct fake_stream {
    int context;
    uint64_t id;
    bool is_capturing, is_alive, is_blocking;
};

struct fake_event {
    bool is_alive, is_recorded, is_complete, is_captured;
    int context;
    vpmm_stream_handle stream; /* of the last record; NULL: the whole context */
};

/* Where a thread can be made to stop. */
enum fake_stop {
    FAKE_STOP_NONE,
    FAKE_STOP_RECORD,
    FAKE_STOP_RECORD_CONTEXT,
    FAKE_STOP_QUERY,
    FAKE_STOP_SYNCHRONIZE,
    FAKE_STOP_SYNCHRONIZE_CONTEXT
};

struct fake {
    struct vpmm_driver driver;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fake_context contexts[FAKE_CONTEXTS];
    struct fake_stream streams[FAKE_STREAMS];
    struct fake_event events[FAKE_EVENTS];
    int current; /* context of every thread; -1: none */
    bool has_ids;
    int last_event; /* the last one recorded */
    /* The next call answers this, once. */
    enum vpmm_status fail_create, fail_record, fail_record_context, fail_query, fail_synchronize;
    enum fake_stop stop;
    bool is_stopped;
    /* Called inside event_record, after it. */
    void (*after_record)(struct fake *fake);
    int n_created, n_destroyed, n_records, n_context_records, n_queries, n_stream_waits,
        n_synchronized, n_context_synchronized, n_facts, n_ids, n_misused;
    vpmm_atomic32 n_relaxed;
    struct vpmm_memory memory;
    int n_maps, fail_map; /* the Nth map fails, if not 0 */
    size_t mapped_bytes;
};

void fake_init(struct fake *fake);
void fake_finish(struct fake *fake);

vpmm_context_handle fake_context(int context);
vpmm_stream_handle fake_stream(int stream);

/* A living stream of the context with a new id, at that place. */
void fake_stream_create(struct fake *fake, int stream, int context);
/* The event last recorded is complete; or all that were ever recorded in a context are. */
void fake_complete(struct fake *fake, int event);
void fake_complete_context(struct fake *fake, int context);
void fake_context_destroy(struct fake *fake, int context);
void fake_context_create(struct fake *fake, int context); /* again */
void fake_capture(struct fake *fake, int stream, bool begin);
/* Waits until a thread has stopped; lets it go. */
void fake_await_stop(struct fake *fake);
void fake_go(struct fake *fake);

/* An order over the fake, and its end, which checks that nothing is left over and nothing was
 * misused. */
struct vpmm_order *fake_order(struct fake *fake);
void fake_order_end(struct fake *fake, struct vpmm_order *order);

/* The stream as the order knows it. */
struct vpmm_stream fake_known(struct vpmm_order *order, int stream);

#endif
