/* SPDX-License-Identifier: MIT */
#include "device.h"

#include "base/lock.h"
#include "device_memory.h"

#define CONTEXT_BASE 0x100
#define STREAM_BASE 0x200
#define EVENT_BASE 0x300

static int context_of(int stream)
{
    return stream / (DEVICE_STREAMS / DEVICE_CONTEXTS);
}

static bool is_legacy(int stream)
{
    return stream % (DEVICE_STREAMS / DEVICE_CONTEXTS) == 0;
}

vpmm_stream_handle device_stream(int stream)
{
    return (vpmm_stream_handle)(uintptr_t)(STREAM_BASE + stream);
}

uint64_t device_stream_id(int stream)
{
    return (uint64_t)stream + 1;
}

vpmm_context_handle device_context(int context)
{
    return (vpmm_context_handle)(uintptr_t)(CONTEXT_BASE + context);
}

static int context_number(vpmm_context_handle handle)
{
    int number = (int)((uintptr_t)handle - CONTEXT_BASE);
    expect(number >= 0 && number < DEVICE_CONTEXTS);
    return number;
}

static int stream_number(const struct gpu *device, vpmm_stream_handle handle)
{
    if (handle == VPMM_STREAM_LEGACY)
        return device->current * (DEVICE_STREAMS / DEVICE_CONTEXTS);
    int number = (int)((uintptr_t)handle - STREAM_BASE);
    expect(number >= 0 && number < DEVICE_STREAMS);
    return number;
}

static struct device_event *event_at(struct gpu *device, vpmm_event_handle handle)
{
    uintptr_t number = (uintptr_t)handle - EVENT_BASE;
    expect(number < device->n_events);
    return &device->events[number];
}

bool device_call_fails(struct gpu *device, enum device_call call)
{
    return device->fails == call && device->fails_nth && --device->fails_nth == 0;
}

void device_do(struct step *step)
{
    expect(vpmm_lock_none_held());
    schedule_step(step);
}

/* ---- contexts and streams ---- */

static enum vpmm_status context_current(void *self, vpmm_context_handle *context_out)
{
    const struct gpu *device = self;
    *context_out = device_context(device->current);
    return VPMM_OK;
}

static enum vpmm_status context_device(void *self, vpmm_context_handle handle, int *device_out)
{
    struct gpu *device = self;
    int context = context_number(handle);
    struct step step = {.what = "ask for a context's device"};
    step_touch(&step, &device->contexts[context], TOUCH_READS);
    device_do(&step);
    if (!device->contexts[context].is_alive)
        return VPMM_CONTEXT_GONE;
    *device_out = 0;
    return VPMM_OK;
}

static enum vpmm_status stream_facts(void *self, vpmm_stream_handle handle,
                                     struct vpmm_stream_facts *facts_out)
{
    struct gpu *device = self;
    int stream = stream_number(device, handle);
    struct step step = {.what = "ask for a stream's facts"};
    step_touch(&step, &device->contexts[context_of(stream)], TOUCH_READS);
    step_touch(&step, &device->streams[stream].is_capturing, TOUCH_READS);
    device_do(&step);
    if (!device->contexts[context_of(stream)].is_alive)
        return VPMM_CONTEXT_GONE;
    bool captures = device->streams[stream].is_capturing;
    *facts_out = (struct vpmm_stream_facts){.context = device_context(context_of(stream)),
                                            .id = captures ? 0 : device_stream_id(stream),
                                            .is_legacy = is_legacy(stream),
                                            .is_capturing = captures};
    return VPMM_OK;
}

static enum vpmm_status stream_captures(void *self, vpmm_stream_handle handle, bool *captures_out)
{
    struct gpu *device = self;
    int stream = stream_number(device, handle);
    struct step step = {.what = "ask whether a stream captures"};
    step_touch(&step, &device->contexts[context_of(stream)], TOUCH_READS);
    step_touch(&step, &device->streams[stream].is_capturing, TOUCH_READS);
    device_do(&step);
    *captures_out = device->streams[stream].is_capturing;
    return device->contexts[context_of(stream)].is_alive ? VPMM_OK : VPMM_CONTEXT_GONE;
}

static enum vpmm_status stream_wait(void *self, vpmm_stream_handle stream, vpmm_event_handle handle)
{
    struct gpu *device = self;
    struct device_event *event = event_at(device, handle);
    struct step step = {.what = "make a stream wait"};
    step_touch(&step, event, TOUCH_READS);
    step_touch(&step, &device->contexts[event->context], TOUCH_READS);
    step_touch(&step, &device->n_capturing, TOUCH_READS);
    device_do(&step);
    expect(event->is_alive && device->contexts[event->context].is_alive && event->is_recorded);
    expect(!is_legacy(stream_number(device, stream)) || !device->n_capturing);
    return VPMM_OK;
}

/* ---- events ---- */

static enum vpmm_status event_create(void *self, vpmm_context_handle handle,
                                     vpmm_event_handle *event_out)
{
    struct gpu *device = self;
    int context = context_number(handle);
    struct step step = {.what = "create an event"};
    step_touch(&step, &device->contexts[context], TOUCH_READS);
    device_do(&step);
    if (!device->contexts[context].is_alive)
        return VPMM_CONTEXT_GONE;
    expect(device->n_events < DEVICE_EVENTS);
    device->events[device->n_events] = (struct device_event){.is_alive = true, .context = context};
    *event_out = (vpmm_event_handle)(uintptr_t)(EVENT_BASE + device->n_events++);
    return VPMM_OK;
}

static enum vpmm_status event_destroy(void *self, vpmm_event_handle handle)
{
    struct gpu *device = self;
    struct device_event *event = event_at(device, handle);
    struct step step = {.what = "destroy an event"};
    step_touch(&step, event, TOUCH_WRITES);
    step_touch(&step, &device->contexts[event->context], TOUCH_READS);
    device_do(&step);
    expect(event->is_alive && device->contexts[event->context].is_alive && !event->n_asked);
    event->is_alive = false;
    return VPMM_OK;
}

/* The work of the stream, or (-1) of all streams of the event's context. */
static void touch_work(struct gpu *device, struct step *step, const struct device_event *event,
                       int stream)
{
    step_touch(step, event, TOUCH_WRITES);
    step_touch(step, &device->contexts[event->context], TOUCH_READS);
    step_touch(step, &device->n_capturing, TOUCH_READS);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (i == stream || (stream < 0 && context_of(i) == event->context))
            step_touch(step, &device->streams[i].queued, TOUCH_READS);
}

static void mark(struct gpu *device, struct device_event *event, int stream)
{
    expect(!event->n_asked);
    event->is_recorded = true;
    event->is_captured = false;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        event->marks[i] = i == stream || (stream < 0 && context_of(i) == event->context)
                              ? device->streams[i].queued
                              : 0;
}

static enum vpmm_status event_record(void *self, vpmm_event_handle handle,
                                     vpmm_stream_handle stream_handle)
{
    struct gpu *device = self;
    struct device_event *event = event_at(device, handle);
    int stream = stream_number(device, stream_handle);
    struct step step = {.what = "record an event on a stream"};
    touch_work(device, &step, event, stream);
    step_touch(&step, &device->streams[stream].is_capturing, TOUCH_READS);
    device_do(&step);
    expect(event->is_alive && device->contexts[event->context].is_alive);
    if (device_call_fails(device, CALL_EVENT_RECORD))
        return device->failure;
    mark(device, event, stream);
    event->is_captured = device->streams[stream].is_capturing;
    return VPMM_OK;
}

static enum vpmm_status event_record_context(void *self, vpmm_event_handle handle,
                                             vpmm_context_handle context)
{
    struct gpu *device = self;
    struct device_event *event = event_at(device, handle);
    struct step step = {.what = "record an event on a context"};
    touch_work(device, &step, event, -1);
    device_do(&step);
    expect(event->is_alive && event->context == context_number(context));
    expect(device->contexts[event->context].is_alive);
    expect(!device->n_capturing);
    if (device_call_fails(device, CALL_EVENT_RECORD_CONTEXT))
        return device->failure;
    mark(device, event, -1);
    return VPMM_OK;
}

struct question {
    const struct gpu *device;
    const struct device_event *event;
};

static bool is_complete(const void *argument)
{
    const struct question *question = argument;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (question->device->streams[i].done < question->event->marks[i])
            return false;
    return true;
}

static enum vpmm_status ask(struct gpu *device, vpmm_event_handle handle, bool waits)
{
    struct device_event *event = event_at(device, handle);
    struct question question = {device, event};
    struct step step = {.what = waits ? "wait for an event" : "query an event",
                        .may = waits ? is_complete : NULL,
                        .argument = &question};
    step_touch(&step, event, TOUCH_READS);
    step_touch(&step, &device->contexts[event->context], TOUCH_READS);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (context_of(i) == event->context)
            step_touch(&step, &device->streams[i].done, TOUCH_READS);
    event->n_asked++;
    device_do(&step);
    event->n_asked--;
    expect(event->is_alive && device->contexts[event->context].is_alive);
    expect(event->is_recorded && device->is_relaxed[schedule_thread()]);
    if (event->is_captured)
        return VPMM_CAPTURED;
    return is_complete(&question) ? VPMM_OK : VPMM_NOT_READY;
}

static enum vpmm_status event_query(void *self, vpmm_event_handle handle)
{
    return ask(self, handle, false);
}

static enum vpmm_status event_synchronize(void *self, vpmm_event_handle handle)
{
    return ask(self, handle, true);
}

static enum vpmm_status capture_relax(void *self, int *mode_out)
{
    struct gpu *device = self;
    *mode_out = device->is_relaxed[schedule_thread()];
    device->is_relaxed[schedule_thread()] = true;
    return VPMM_OK;
}

static void capture_restore(void *self, int mode)
{
    struct gpu *device = self;
    device->is_relaxed[schedule_thread()] = mode != 0;
}

/* ---- the program and the device ---- */

void device_queue(struct gpu *device, int stream)
{
    struct step step = {.what = "queue work"};
    step_touch(&step, &device->streams[stream].queued, TOUCH_WRITES);
    schedule_step(&step);
    device->streams[stream].queued++;
}

void device_finish(struct gpu *device, int stream)
{
    struct step step = {.what = "finish work"};
    step_touch(&step, &device->streams[stream].queued, TOUCH_READS);
    step_touch(&step, &device->streams[stream].done, TOUCH_WRITES);
    schedule_step(&step);
    device->streams[stream].done = device->streams[stream].queued;
}

static void set_capturing(struct gpu *device, int stream, bool captures)
{
    struct step step = {.what = captures ? "begin a capture" : "end a capture"};
    step_touch(&step, &device->streams[stream].is_capturing, TOUCH_WRITES);
    step_touch(&step, &device->n_capturing, TOUCH_WRITES);
    schedule_step(&step);
    device->streams[stream].is_capturing = captures;
    device->n_capturing += captures ? 1u : -1u;
}

bool device_capture_begin(struct gpu *device, int stream)
{
    set_capturing(device, stream, true);
    return true;
}

void device_capture_end(struct gpu *device, int stream)
{
    set_capturing(device, stream, false);
}

void device_context_destroy(struct gpu *device, int context)
{
    struct step step = {.what = "destroy a context"};
    step_touch(&step, &device->contexts[context], TOUCH_WRITES);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (context_of(i) == context)
            step_touch(&step, &device->streams[i].done, TOUCH_WRITES);
    schedule_step(&step);
    device->contexts[context].is_alive = false;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (context_of(i) == context)
            device->streams[i].done = device->streams[i].queued;
}

bool device_is_idle(const struct gpu *device, int stream)
{
    return device->streams[stream].done == device->streams[stream].queued;
}

struct gpu *device_create(uint64_t total_pages)
{
    struct gpu *device = schedule_room(sizeof *device);
    device->total_pages = total_pages;
    for (int i = 0; i < DEVICE_CONTEXTS; i++)
        device->contexts[i].is_alive = true;
    device->driver = (struct vpmm_driver){
        .self = device,
        .context_current = context_current,
        .context_device = context_device,
        .stream_facts = stream_facts,
        .stream_captures = stream_captures,
        .stream_wait = stream_wait,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_record_context = event_record_context,
        .event_query = event_query,
        .event_synchronize = event_synchronize,
        .capture_relax = capture_relax,
        .capture_restore = capture_restore,
    };
    device_memory_fill(&device->driver);
    return device;
}

void device_expect_empty(const struct gpu *device)
{
    for (uint32_t i = 0; i < device->n_events; i++)
        expect(!device->events[i].is_alive ||
               !device->contexts[device->events[i].context].is_alive);
    for (uint32_t i = 0; i < DEVICE_EXTENTS; i++)
        expect(!device->extents[i].is_alive && !device->extents[i].n_mapped);
}
