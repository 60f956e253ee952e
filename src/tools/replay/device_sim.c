/* SPDX-License-Identifier: MIT */
/* Replays on the simulated device, in the time of the trace. Must not wait in real time for its
 * work. */
#include "replay/device.h"

#include "base/bytes.h"
#include "replay/timeline.h"
#include "sim/sim_table.h"

#include <stdio.h>
#include <stdlib.h>

struct sim_device {
    struct vpmm_replay_device base;
    struct sim *sim;
    struct vpmm_driver inner;
    struct vpmm_timeline timeline;
};

static struct sim_device *of(struct vpmm_replay_device *device)
{
    return (struct sim_device *)(void *)device;
}

static void wait_on_host(void *self, vpmm_event_handle event)
{
    vpmm_timeline_wait(self, (CUevent)(void *)event);
}

static void close_device(struct vpmm_replay_device *base)
{
    struct sim_device *device = of(base);
    if (device->sim)
        sim_destroy(device->sim);
    vpmm_priced_finish(&base->priced);
    free(device->timeline.streams);
    free(device->timeline.events);
    free(device);
}

static vpmm_stream_handle stream(struct vpmm_replay_device *base, uint32_t number)
{
    return (vpmm_stream_handle)(void *)of(base)->timeline.streams[number].handle;
}

static void begin(struct vpmm_replay_device *base, uint64_t tape_ns)
{
    of(base)->timeline.shift_ns = of(base)->timeline.now_ns - tape_ns;
}

static void go_to(struct vpmm_replay_device *base, uint64_t tape_ns)
{
    vpmm_timeline_go_to(&of(base)->timeline, tape_ns);
}

static enum vpmm_status work(struct vpmm_replay_device *base, uint32_t number, uint64_t duration_ns)
{
    return sim_table_status(vpmm_timeline_work(&of(base)->timeline, number, duration_ns));
}

static vpmm_event_handle event_handle(struct vpmm_replay_device *base, uint32_t number)
{
    return (vpmm_event_handle)(void *)of(base)->timeline.events[number].handle;
}

static enum vpmm_status record(struct vpmm_replay_device *base, uint32_t event, uint32_t number)
{
    return sim_table_status(vpmm_timeline_record(&of(base)->timeline, event, number));
}

static enum vpmm_status follow(struct vpmm_replay_device *base, uint32_t event, uint32_t number)
{
    return sim_table_status(vpmm_timeline_follow(&of(base)->timeline, event, number));
}

static enum vpmm_status drain(struct vpmm_replay_device *base)
{
    vpmm_timeline_drain(&of(base)->timeline);
    return VPMM_OK;
}

static uint64_t waited_ns(const struct vpmm_replay_device *base)
{
    return ((const struct sim_device *)(const void *)base)->timeline.waited_ns;
}

static CUresult make_stream(struct sim_device *device, uint64_t name, CUstream *stream_out)
{
    if (name == 0 || name == (uintptr_t)CU_STREAM_LEGACY)
        *stream_out = CU_STREAM_LEGACY;
    else if (name == (uintptr_t)CU_STREAM_PER_THREAD)
        *stream_out = CU_STREAM_PER_THREAD;
    else
        return sim_stream_create(device->sim, CU_STREAM_NON_BLOCKING, 0, stream_out);
    return CUDA_SUCCESS;
}

/* Streams and events. */
static bool furnish(struct sim_device *device, const struct vpmm_tape *tape)
{
    struct vpmm_timeline *timeline = &device->timeline;
    CUresult result = CUDA_SUCCESS;
    timeline->sim = device->sim;
    timeline->n_streams = tape->n_streams;
    timeline->n_events = tape->n_events;
    timeline->streams = calloc((size_t)tape->n_streams + 1, sizeof *timeline->streams);
    timeline->events = calloc((size_t)tape->n_events + 1, sizeof *timeline->events);
    if (!timeline->streams || !timeline->events)
        return false;
    for (uint32_t i = 0; i < tape->n_streams && !result; i++)
        result = make_stream(device, tape->streams[i], &timeline->streams[i].handle);
    for (uint32_t i = 0; i < tape->n_events && !result; i++)
        result =
            sim_event_create(device->sim, CU_EVENT_DISABLE_TIMING, &timeline->events[i].handle);
    return !result;
}

static bool start(struct sim_device *device, uint64_t bytes, const struct vpmm_tape *tape)
{
    struct sim_config config;
    CUcontext context;
    sim_config_default(&config);
    config.device_bytes = bytes;
    config.has_bytes = false;
    device->sim = sim_create(&config);
    if (!device->sim || sim_ctx_create(device->sim, 0, 0, &context) != CUDA_SUCCESS ||
        !furnish(device, tape))
        return false;
    sim_table_fill(device->sim, &device->inner);
    vpmm_priced_fill(&device->base.priced, &device->inner, config.granularity,
                     &device->base.driver);
    device->base.priced.wait = wait_on_host;
    device->base.priced.wait_self = &device->timeline;
    return true;
}

struct vpmm_replay_device *
vpmm_replay_device_sim(const struct vpmm_tape *tape, uint64_t bytes,
                       char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    char size[24];
    struct sim_device *device = calloc(1, sizeof *device);
    (void)vpmm_bytes_print(bytes, size, sizeof size);
    if (!device || !start(device, bytes, tape)) {
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES,
                       "no simulated device of %s can be had", size);
        if (device)
            close_device(&device->base);
        return NULL;
    }
    struct vpmm_replay_device *base = &device->base;
    (void)snprintf(base->name, sizeof base->name, "the simulated device of %s", size);
    base->total_bytes = bytes;
    base->has_work = true;
    base->close = close_device;
    base->stream = stream;
    base->begin = begin;
    base->go_to = go_to;
    base->work = work;
    base->event = event_handle;
    base->record = record;
    base->follow = follow;
    base->drain = drain;
    base->waited_ns = waited_ns;
    return base;
}
