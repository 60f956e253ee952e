/* SPDX-License-Identifier: MIT */
#include "fake.h"

#include "base/lock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#define CONTEXT_BASE 0x1000
#define STREAM_BASE 0x2000
/* A Fibonacci number: multiplied by the golden ratio, handles so far apart lie close together. */
#define STREAM_STRIDE 610
#define EVENT_BASE 0x3000

static _Thread_local bool is_relaxed;

vpmm_context_handle fake_context(int context)
{
    return (vpmm_context_handle)(uintptr_t)(CONTEXT_BASE + context);
}

vpmm_stream_handle fake_stream(int stream)
{
    return (vpmm_stream_handle)(uintptr_t)(STREAM_BASE + stream * STREAM_STRIDE);
}

static size_t stream_number(vpmm_stream_handle stream)
{
    return ((uintptr_t)stream - STREAM_BASE) / STREAM_STRIDE;
}

static int context_index(vpmm_context_handle handle)
{
    return (int)((uintptr_t)handle - CONTEXT_BASE);
}

static struct fake *enter(void *self)
{
    struct fake *fake = self;
    pthread_mutex_lock(&fake->mutex);
    fake->n_misused += !vpmm_lock_none_held();
    return fake;
}

static enum vpmm_status leave(struct fake *fake, enum vpmm_status status)
{
    pthread_mutex_unlock(&fake->mutex);
    return status;
}

static enum vpmm_status failure(enum vpmm_status *planned)
{
    enum vpmm_status status = *planned;
    *planned = VPMM_OK;
    return status;
}

static void stop_at(struct fake *fake, enum fake_stop stop)
{
    if (fake->stop != stop || fake->is_stopped)
        return;
    fake->is_stopped = true;
    pthread_cond_broadcast(&fake->changed);
    while (fake->stop == stop)
        pthread_cond_wait(&fake->changed, &fake->mutex);
    fake->is_stopped = false;
}

static struct fake_event *event_of(struct fake *fake, vpmm_event_handle handle)
{
    struct fake_event *event = &fake->events[(uintptr_t)handle - EVENT_BASE];
    fake->n_misused += !event->is_alive;
    return event;
}

static enum vpmm_status context_current(void *self, vpmm_context_handle *context_out)
{
    struct fake *fake = enter(self);
    if (fake->current < 0)
        return leave(fake, VPMM_NO_CONTEXT);
    *context_out = fake_context(fake->current);
    return leave(fake, VPMM_OK);
}

static enum vpmm_status context_device(void *self, vpmm_context_handle context, int *device_out)
{
    struct fake *fake = enter(self);
    if (!fake->contexts[context_index(context)].is_alive)
        return leave(fake, VPMM_CONTEXT_GONE);
    *device_out = context_index(context) % 2;
    return leave(fake, VPMM_OK);
}

static enum vpmm_status context_id(void *self, vpmm_context_handle context, uint64_t *id_out)
{
    struct fake *fake = enter(self);
    const struct fake_context *known = &fake->contexts[context_index(context)];
    if (!known->is_alive)
        return leave(fake, VPMM_CONTEXT_GONE);
    *id_out = known->id;
    return leave(fake, VPMM_OK);
}

static enum vpmm_status context_synchronize(void *self, vpmm_context_handle context)
{
    struct fake *fake = enter(self);
    struct fake_context *known = &fake->contexts[context_index(context)];
    fake->n_misused += known->n_captures > 0 || !is_relaxed;
    fake->n_context_synchronized++;
    stop_at(fake, FAKE_STOP_SYNCHRONIZE_CONTEXT);
    enum vpmm_status status = failure(&fake->fail_synchronize);
    if (!known->is_alive)
        status = VPMM_CONTEXT_GONE;
    leave(fake, status);
    if (!status)
        fake_complete_context(fake, context_index(context));
    return status;
}

static enum vpmm_status stream_facts(void *self, vpmm_stream_handle stream,
                                     struct vpmm_stream_facts *facts_out)
{
    struct fake *fake = enter(self);
    struct vpmm_stream_facts facts = {.is_legacy = stream == VPMM_STREAM_LEGACY};
    fake->n_facts++;
    if (stream == VPMM_STREAM_LEGACY || stream == VPMM_STREAM_PER_THREAD) {
        if (fake->current < 0)
            return leave(fake, VPMM_NO_CONTEXT);
        facts.context = fake_context(fake->current);
        facts.id = 100 + (uint64_t)fake->current * 2 + !facts.is_legacy;
    } else {
        struct fake_stream *known = &fake->streams[stream_number(stream)];
        if (!known->is_alive)
            return leave(fake, VPMM_INVALID);
        facts.context = fake_context(known->context);
        facts.id = known->is_capturing ? 0 : known->id;
        facts.is_blocking = known->is_blocking && !known->is_capturing;
        facts.is_capturing = known->is_capturing;
    }
    if (!fake->has_ids)
        facts.id = 0;
    *facts_out = facts;
    return leave(fake, VPMM_OK);
}

static enum vpmm_status stream_captures(void *self, vpmm_stream_handle stream, bool *captures_out)
{
    struct fake *fake = enter(self);
    if (stream == VPMM_STREAM_LEGACY || stream == VPMM_STREAM_PER_THREAD) {
        *captures_out = false;
        return leave(fake, fake->current < 0 ? VPMM_NO_CONTEXT : VPMM_OK);
    }
    const struct fake_stream *known = &fake->streams[stream_number(stream)];
    *captures_out = known->is_capturing;
    return leave(fake, known->is_alive ? VPMM_OK : VPMM_INVALID);
}

static enum vpmm_status stream_wait(void *self, vpmm_stream_handle stream, vpmm_event_handle event)
{
    struct fake *fake = enter(self);
    (void)stream;
    event_of(fake, event);
    fake->n_stream_waits++;
    return leave(fake, VPMM_OK);
}

static enum vpmm_status event_create(void *self, vpmm_context_handle context,
                                     vpmm_event_handle *event_out)
{
    struct fake *fake = enter(self);
    enum vpmm_status status = failure(&fake->fail_create);
    if (!status && !fake->contexts[context_index(context)].is_alive)
        status = VPMM_CONTEXT_GONE;
    if (status)
        return leave(fake, status);
    assert_true(fake->n_created < FAKE_EVENTS);
    fake->events[fake->n_created] =
        (struct fake_event){.is_alive = true, .context = context_index(context)};
    *event_out = (vpmm_event_handle)(uintptr_t)(EVENT_BASE + fake->n_created++);
    return leave(fake, VPMM_OK);
}

static enum vpmm_status event_destroy(void *self, vpmm_event_handle handle)
{
    struct fake *fake = enter(self);
    event_of(fake, handle)->is_alive = false;
    fake->n_destroyed++;
    return leave(fake, VPMM_OK);
}

static void set_recorded(struct fake *fake, struct fake_event *event, vpmm_stream_handle stream)
{
    event->is_recorded = true;
    event->is_complete = false;
    event->is_captured = false;
    event->stream = stream;
    fake->last_event = (int)(event - fake->events);
}

static enum vpmm_status event_record(void *self, vpmm_event_handle handle,
                                     vpmm_stream_handle stream)
{
    struct fake *fake = enter(self);
    struct fake_event *event = event_of(fake, handle);
    fake->n_records++;
    stop_at(fake, FAKE_STOP_RECORD);
    enum vpmm_status status = failure(&fake->fail_record);
    if (status)
        return leave(fake, status);
    set_recorded(fake, event, stream);
    if (stream != VPMM_STREAM_LEGACY && stream != VPMM_STREAM_PER_THREAD)
        event->is_captured = fake->streams[stream_number(stream)].is_capturing;
    leave(fake, VPMM_OK);
    if (fake->after_record)
        fake->after_record(fake);
    return VPMM_OK;
}

static enum vpmm_status event_record_context(void *self, vpmm_event_handle handle,
                                             vpmm_context_handle context)
{
    struct fake *fake = enter(self);
    struct fake_event *event = event_of(fake, handle);
    struct fake_context *known = &fake->contexts[context_index(context)];
    fake->n_context_records++;
    stop_at(fake, FAKE_STOP_RECORD_CONTEXT);
    enum vpmm_status status = failure(&fake->fail_record_context);
    if (!status && !known->is_alive)
        status = VPMM_CONTEXT_GONE;
    fake->n_misused += event->context != context_index(context);
    if (known->n_captures) {
        known->is_capture_broken = true;
        fake->n_misused++;
        status = VPMM_CAPTURED;
    }
    if (!status)
        set_recorded(fake, event, NULL);
    return leave(fake, status);
}

static enum vpmm_status state_of(struct fake *fake, const struct fake_event *event)
{
    fake->n_misused += !is_relaxed;
    if (!fake->contexts[event->context].is_alive)
        return VPMM_CONTEXT_GONE;
    if (event->is_captured)
        return VPMM_CAPTURED;
    return !event->is_recorded || event->is_complete ? VPMM_OK : VPMM_NOT_READY;
}

static enum vpmm_status event_query(void *self, vpmm_event_handle handle)
{
    struct fake *fake = enter(self);
    fake->n_queries++;
    stop_at(fake, FAKE_STOP_QUERY);
    enum vpmm_status status = failure(&fake->fail_query);
    return leave(fake, status ? status : state_of(fake, event_of(fake, handle)));
}

static enum vpmm_status event_synchronize(void *self, vpmm_event_handle handle)
{
    struct fake *fake = enter(self);
    struct fake_event *event = event_of(fake, handle);
    fake->n_synchronized++;
    stop_at(fake, FAKE_STOP_SYNCHRONIZE);
    enum vpmm_status status = failure(&fake->fail_synchronize);
    if (!status)
        event->is_complete = true;
    return leave(fake, status ? status : state_of(fake, event));
}

static enum vpmm_status capture_relax(void *self, int *mode_out)
{
    struct fake *fake = self;
    vpmm_atomic_add(&fake->n_relaxed, 1);
    *mode_out = is_relaxed;
    is_relaxed = true;
    return VPMM_OK;
}

static void capture_restore(void *self, int mode)
{
    (void)self;
    is_relaxed = mode != 0;
}

static void *map(void *self, size_t bytes)
{
    struct fake *fake = self;
    pthread_mutex_lock(&fake->mutex);
    bool fails = ++fake->n_maps == fake->fail_map;
    fake->mapped_bytes += fails ? 0 : bytes;
    pthread_mutex_unlock(&fake->mutex);
    return fails ? NULL : vpmm_memory_system.map(NULL, bytes);
}

static void unmap(void *self, void *address, size_t bytes)
{
    struct fake *fake = self;
    pthread_mutex_lock(&fake->mutex);
    fake->mapped_bytes -= bytes;
    pthread_mutex_unlock(&fake->mutex);
    vpmm_memory_system.unmap(NULL, address, bytes);
}

void fake_init(struct fake *fake)
{
    memset(fake, 0, sizeof *fake);
    pthread_mutex_init(&fake->mutex, NULL);
    pthread_cond_init(&fake->changed, NULL);
    for (int i = 0; i < FAKE_CONTEXTS; i++)
        fake_context_create(fake, i);
    for (int i = 0; i < FAKE_STREAMS; i++)
        fake_stream_create(fake, i, 0);
    fake->has_ids = true;
    fake->memory = (struct vpmm_memory){fake, map, unmap};
    fake->driver = (struct vpmm_driver){
        .self = fake,
        .context_current = context_current,
        .context_device = context_device,
        .context_id = context_id,
        .context_synchronize = context_synchronize,
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
}

void fake_finish(struct fake *fake)
{
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->mutex);
}

struct vpmm_order *fake_order(struct fake *fake)
{
    struct vpmm_order *order;
    assert_int_equal(vpmm_order_create(&fake->driver, &fake->memory, &order), VPMM_OK);
    return order;
}

void fake_order_end(struct fake *fake, struct vpmm_order *order)
{
    vpmm_order_destroy(order);
    assert_int_equal(fake->n_created, fake->n_destroyed);
    assert_int_equal(fake->mapped_bytes, 0);
    assert_int_equal(fake->n_misused, 0);
    assert_false(is_relaxed);
    fake_finish(fake);
}

struct vpmm_stream fake_known(struct vpmm_order *order, int stream)
{
    struct vpmm_stream known;
    assert_int_equal(vpmm_order_stream(order, fake_stream(stream), &known), VPMM_OK);
    return known;
}
