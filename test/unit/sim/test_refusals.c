/* SPDX-License-Identifier: MIT */
/* What is refused while a stream captures, and what it costs, by the capture's mode, by thread, by
 * the thread's own mode and by the kind of the captured stream. */
#include "fixture.h"

#define UNSUPPORTED CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define IMPLICIT CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
#define INVALIDATED CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
#define INVALID CUDA_ERROR_INVALID_VALUE
#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

typedef CUresult (*act)(struct capture_scene *s);
#define ACT(name, call)                                                                            \
    static CUresult name(struct capture_scene *s)                                                  \
    {                                                                                              \
        CUdeviceptr address = s->plain;                                                            \
        unsigned long long id;                                                                     \
        CUcontext context;                                                                         \
        (void)address, (void)id, (void)context;                                                    \
        return (call);                                                                             \
    }

ACT(query, sim_event_query(s->f->sim, s->spare))
ACT(event_sync, sim_event_synchronize(s->f->sim, s->spare))
ACT(stream_sync, sim_stream_synchronize(s->f->sim, s->other))
ACT(alloc, sim_mem_alloc(s->f->sim, PAGE, &address))
ACT(free_plain, sim_mem_free(s->f->sim, address))
ACT(alloc_async_other, sim_mem_alloc_async(s->f->sim, PAGE, s->other, &address))
ACT(free_async_other, sim_mem_free_async(s->f->sim, address, s->other))
ACT(free_mapped, sim_mem_free(s->f->sim, s->mapped))
ACT(free_low, sim_mem_free(s->f->sim, 0x10))
ACT(free_async_mapped, sim_mem_free_async(s->f->sim, s->mapped, s->other))
ACT(free_async_low, sim_mem_free_async(s->f->sim, 0x10, s->other))
ACT(free_async_captured, sim_mem_free_async(s->f->sim, s->mapped, s->stream))
ACT(free_async_legacy, sim_mem_free_async(s->f->sim, s->mapped, NULL))
ACT(record_other, sim_event_record(s->f->sim, s->spare, s->other))
ACT(record_legacy, sim_event_record(s->f->sim, s->spare, CU_STREAM_LEGACY))
ACT(context_record, sim_ctx_record_event(s->f->sim, s->f->context, s->spare))
ACT(context_wait, sim_ctx_wait_event(s->f->sim, s->f->context, s->spare))
ACT(context_sync, sim_ctx_synchronize(s->f->sim))
ACT(context_of_captured, sim_stream_get_ctx(s->f->sim, s->stream, &context, NULL))
ACT(context_of_legacy, sim_stream_get_ctx(s->f->sim, NULL, &context, NULL))
ACT(id_of_captured, sim_stream_get_id(s->f->sim, s->stream, &id))
ACT(id_of_other, sim_stream_get_id(s->f->sim, s->other, &id))
ACT(id_of_legacy, sim_stream_get_id(s->f->sim, CU_STREAM_LEGACY, &id))
ACT(id_of_context, sim_ctx_get_id(s->f->sim, NULL, &id))

static CUresult trim(struct capture_scene *s)
{
    CUmemoryPool pool;
    OK(sim_device_get_default_mem_pool(s->f->sim, 0, &pool));
    return sim_mem_pool_trim_to(s->f->sim, pool, 0);
}

static CUresult copy_back(struct capture_scene *s)
{
    char bytes[16];
    return sim_memcpy(s->f->sim, (CUdeviceptr)(uintptr_t)bytes, s->plain, sizeof bytes, NULL);
}

static CUresult mapping(struct capture_scene *s)
{
    CUdeviceptr at = s->mapped + PAGE;
    CUmemGenericAllocationHandle handle = page_create(s->f, 0, 1);
    OK(sim_mem_map(s->f->sim, at, PAGE, 0, handle, 0));
    page_access(s->f, at, PAGE, 0);
    OK(sim_mem_unmap(s->f->sim, at, PAGE));
    return sim_mem_release(s->f->sim, handle);
}

static CUresult questions(struct capture_scene *s)
{
    CUevent event;
    CUdevice device;
    CUcontext context;
    size_t free_bytes;
    OK(sim_event_create(s->f->sim, 0, &event));
    OK(sim_event_destroy(s->f->sim, event));
    OK(sim_ctx_push_current(s->f->sim, s->f->context));
    OK(sim_ctx_get_device(s->f->sim, &device));
    OK(sim_ctx_pop_current(s->f->sim, &context));
    OK(sim_mem_get_info(s->f->sim, &free_bytes, NULL));
    return sim_pointer_get_attribute(s->f->sim, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, s->plain,
                                     &device);
}

/* A capture of `mode` on a stream with `flags`, and the thread that acts during it. */
struct way {
    CUstreamCaptureMode mode;
    bool same_thread;
    CUstreamCaptureMode thread_mode;
    unsigned flags;
};

static void row(act action, struct way way, CUresult answer, bool breaks)
{
    struct capture_scene s = capture_scene_new(way.flags);
    struct trail trail = {0};
    CUgraph graph;
    CUstreamCaptureStatus status;
    OK(sim_stream_begin_capture(s.f->sim, s.stream, way.mode));
    OK(step_queue(s.f, s.stream, &trail, 1));
    if (!way.same_thread) {
        sim_thread_act_as(s.f->sim, 1);
        OK(sim_ctx_push_current(s.f->sim, s.f->context));
    }
    OK(sim_thread_exchange_stream_capture_mode(s.f->sim, &way.thread_mode));
    IS(answer, action(&s));
    OK(sim_thread_exchange_stream_capture_mode(s.f->sim, &way.thread_mode));
    sim_thread_act_as(s.f->sim, 0);
    if (breaks)
        misuse_taken(s.f, SIM_CAPTURE_BROKEN);
    OK(sim_stream_is_capturing(s.f->sim, s.stream, &status));
    assert_int_equal(status, breaks ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(breaks ? INVALIDATED : CUDA_SUCCESS, step_queue(s.f, s.stream, &trail, 2));
    IS(breaks ? INVALIDATED : CUDA_SUCCESS, sim_stream_end_capture(s.f->sim, s.stream, &graph));
    assert_int_equal(counts_of(s.f).captures, 0);
    assert_int_equal(trail.n, 0);
    fixture_end(s.f);
}

static const struct way modes_matter[] = {
    {GLOBAL, true, GLOBAL, CU_STREAM_NON_BLOCKING},  {LOCAL, true, GLOBAL, CU_STREAM_NON_BLOCKING},
    {GLOBAL, true, LOCAL, CU_STREAM_NON_BLOCKING},   {GLOBAL, true, GLOBAL, CU_STREAM_DEFAULT},
    {GLOBAL, false, GLOBAL, CU_STREAM_NON_BLOCKING},
};
static const struct way modes_forgive[] = {
    {RELAXED, true, GLOBAL, CU_STREAM_NON_BLOCKING},
    {GLOBAL, true, RELAXED, CU_STREAM_NON_BLOCKING},
    {RELAXED, true, GLOBAL, CU_STREAM_DEFAULT},
    {GLOBAL, false, RELAXED, CU_STREAM_NON_BLOCKING},
    {GLOBAL, false, LOCAL, CU_STREAM_NON_BLOCKING},
    {LOCAL, false, GLOBAL, CU_STREAM_NON_BLOCKING},
    {RELAXED, false, GLOBAL, CU_STREAM_NON_BLOCKING},
};
#define EACH(way, ways)                                                                            \
    for (const struct way *way = (ways); way < (ways) + sizeof(ways) / sizeof *(ways); way++)

static void in_any_way(act action, CUresult answer, bool breaks)
{
    EACH(way, modes_matter)
    row(action, *way, answer, breaks);
    EACH(way, modes_forgive)
    row(action, *way, answer, breaks);
}

static void in_any_way_by_kind(act action, CUresult answer, CUresult answer_blocking,
                               bool breaks_blocking)
{
    EACH(way, modes_matter)
    row(action, *way, way->flags == CU_STREAM_DEFAULT ? answer_blocking : answer,
        way->flags == CU_STREAM_DEFAULT && breaks_blocking);
    EACH(way, modes_forgive)
    row(action, *way, way->flags == CU_STREAM_DEFAULT ? answer_blocking : answer,
        way->flags == CU_STREAM_DEFAULT && breaks_blocking);
}

static void test_refused_by_mode(void **state)
{
    static const struct {
        act action;
        CUresult forgiven;
    } refused[] = {
        {query, CUDA_SUCCESS},
        {event_sync, CUDA_SUCCESS},
        {stream_sync, CUDA_SUCCESS},
        {alloc, CUDA_SUCCESS},
        {free_plain, CUDA_SUCCESS},
        {alloc_async_other, CUDA_SUCCESS},
        {free_async_other, CUDA_SUCCESS},
        {trim, CUDA_SUCCESS},
        {free_mapped, INVALID},
        {free_low, INVALID},
        {free_async_mapped, INVALID},
        {free_async_low, INVALID},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        EACH(way, modes_matter)
        row(refused[i].action, *way, UNSUPPORTED, true);
        EACH(way, modes_forgive)
        row(refused[i].action, *way, refused[i].forgiven, false);
    }
}

static void test_refused_in_any_mode(void **state)
{
    const act refused[] = {context_record, context_wait, context_sync, id_of_captured};
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        in_any_way(refused[i], UNSUPPORTED, true);
}

static void test_allowed_in_any_mode(void **state)
{
    const act allowed[] = {mapping,     questions,    record_other, context_of_captured,
                           id_of_other, id_of_context};
    (void)state;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        in_any_way(allowed[i], CUDA_SUCCESS, false);
    in_any_way(free_async_captured, INVALID, false);
}

/* The legacy stream minds the captures of blocking streams only, but those in any mode. */
static void test_the_legacy_stream_in_any_mode(void **state)
{
    const act acts[] = {context_of_legacy, id_of_legacy, record_legacy, copy_back};
    (void)state;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        in_any_way_by_kind(acts[i], CUDA_SUCCESS, IMPLICIT, true);
    row(free_async_legacy, (struct way){GLOBAL, true, GLOBAL, CU_STREAM_DEFAULT}, IMPLICIT, true);
    row(free_async_legacy, (struct way){RELAXED, true, RELAXED, CU_STREAM_DEFAULT}, IMPLICIT, true);
    row(free_async_legacy, (struct way){GLOBAL, true, GLOBAL, CU_STREAM_NON_BLOCKING}, UNSUPPORTED,
        true);
    row(free_async_legacy, (struct way){GLOBAL, true, RELAXED, CU_STREAM_NON_BLOCKING}, INVALID,
        false);
}

/* A synchronous copy over the stream that captures would wait for what never runs. */
static void test_a_synchronous_copy_over_the_captured_stream(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    char bytes[16];
    CUgraph graph;
    (void)state;
    OK(sim_stream_begin_capture(s.f->sim, CU_STREAM_PER_THREAD, RELAXED));
    IS(UNSUPPORTED, sim_memcpy(s.f->sim, (CUdeviceptr)(uintptr_t)bytes, s.plain, sizeof bytes,
                               CU_STREAM_PER_THREAD));
    misuse_taken(s.f, SIM_CAPTURE_BROKEN);
    IS(INVALIDATED, sim_stream_end_capture(s.f->sim, CU_STREAM_PER_THREAD, &graph));
    fixture_end(s.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_by_mode),
        cmocka_unit_test(test_refused_in_any_mode),
        cmocka_unit_test(test_allowed_in_any_mode),
        cmocka_unit_test(test_the_legacy_stream_in_any_mode),
        cmocka_unit_test(test_a_synchronous_copy_over_the_captured_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
