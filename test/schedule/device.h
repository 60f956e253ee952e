/* SPDX-License-Identifier: MIT */
/* The seam for cases: one small deterministic device. Every call is one step, which touches what it
 * asks or changes. Work is a number: a stream has queued so much and done so much of it. What would
 * harm a real program (a record during a capture, a call on an event that is gone, an unmap of
 * nothing, ...) ends the program. */
#ifndef VPMM_TEST_SCHEDULE_DEVICE_H
#define VPMM_TEST_SCHEDULE_DEVICE_H

#include "base/atomic.h"
#include "driver/driver.h"
#include "schedule.h"

#define DEVICE_STREAMS 4 /* two in each of two contexts; the first of each is its legacy stream */
#define DEVICE_CONTEXTS 2
#define DEVICE_EVENTS 64
#define DEVICE_EXTENTS 32
#define DEVICE_PAGES 128
#define DEVICE_PAGE_BYTES ((uint64_t)2 << 20)
#define DEVICE_BASE ((uint64_t)1 << 40)

enum device_call {
    CALL_NONE,
    CALL_EVENT_RECORD,
    CALL_EVENT_RECORD_CONTEXT,
    CALL_EXTENT_CREATE,
    CALL_SET_ACCESS,
    CALL_UNMAP,
    CALL_ADDRESS_RESERVE,
    CALL_DEVICE_FACTS
};

struct device_event {
    bool is_alive, is_recorded, is_captured;
    int context;
    int n_asked;                    /* calls under way that ask about it or wait for it */
    uint64_t marks[DEVICE_STREAMS]; /* complete when each stream has done so much */
};

struct gpu {
    struct vpmm_driver driver;
    uint64_t total_pages;
    struct {
        bool is_alive;
    } contexts[DEVICE_CONTEXTS];
    struct {
        uint64_t queued, done;
        bool is_capturing;
    } streams[DEVICE_STREAMS];
    uint32_t n_capturing;
    struct device_event events[DEVICE_EVENTS];
    struct {
        uint64_t pages;
        bool is_alive;
        uint32_t n_mapped;
    } extents[DEVICE_EXTENTS];
    struct {
        uint32_t extent;  /* 0: none */
        uint64_t devices; /* with access, one bit each */
    } pages[DEVICE_PAGES];
    uint32_t n_events, n_extents, n_reserved_pages;
    bool is_relaxed[SCHEDULE_THREADS + 1];
    int current; /* context of every thread */
    /* The nth such call from now on fails so. */
    enum device_call fails;
    uint32_t fails_nth;
    enum vpmm_status failure;
};

/* In the room of the case. */
struct gpu *device_create(uint64_t total_pages);

vpmm_stream_handle device_stream(int stream);
uint64_t device_stream_id(int stream);
vpmm_context_handle device_context(int context);

/* What the program and the device themselves do; each one step. */
void device_queue(struct gpu *device, int stream);
void device_finish(struct gpu *device, int stream); /* all that is queued on it */
bool device_capture_begin(struct gpu *device, int stream);
void device_capture_end(struct gpu *device, int stream);
void device_context_destroy(struct gpu *device, int context);

/* No step: whether all work of the stream is done, for assertions. */
bool device_is_idle(const struct gpu *device, int stream);
/* Whether nothing is left of what was created. */
void device_expect_empty(const struct gpu *device);

#endif
