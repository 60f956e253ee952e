/* SPDX-License-Identifier: MIT */
/* The program's own order: a request gets what another stream freed as soon as the program's events
 * put its stream after that free, and never before. The stream that frees is held, so that nothing
 * is complete; the device reports work on a page that nothing orders. */
#include "fixture.h"

#include "order/order_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGES 4

struct scene {
    struct fixture f;
    CUstream to, from, third;
    CUevent event, second;
    volatile bool gate;
    uint64_t block;
};

static CUevent event_new(struct scene *s)
{
    CUevent event;
    assert_int_equal(sim_event_create(s->f.sim, CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    return event;
}

static void scene_start(struct scene *s)
{
    fixture_setup_cache(&s->f);
    s->to = fixture_stream(&s->f, CU_STREAM_NON_BLOCKING);
    s->from = fixture_stream(&s->f, CU_STREAM_NON_BLOCKING);
    s->third = fixture_stream(&s->f, CU_STREAM_NON_BLOCKING);
    s->event = event_new(s);
    s->second = event_new(s);
    s->gate = false;
    s->block = fixture_malloc(&s->f, PAGES, s->from);
    fixture_work(&s->f, s->from, s->block, PAGES, true, &s->gate);
}

static void scene_end(struct scene *s)
{
    s->gate = true;
    assert_int_equal(sim_event_destroy(s->f.sim, s->event), CUDA_SUCCESS);
    assert_int_equal(sim_event_destroy(s->f.sim, s->second), CUDA_SUCCESS);
    fixture_teardown(&s->f);
}

static vpmm_event_handle named(CUevent event)
{
    return (vpmm_event_handle)(void *)event;
}

/* As the wrappers of the program's calls do it. */
static void record(struct scene *s, CUevent event, CUstream stream)
{
    struct vpmm_event_points points;
    vpmm_stream_handle handle = (vpmm_stream_handle)(void *)stream;
    vpmm_order_event_recording(s->f.order, named(event), handle, &points);
    assert_int_equal(sim_event_record(s->f.sim, event, stream), CUDA_SUCCESS);
    vpmm_order_event_recorded(s->f.order, named(event), &points, true);
}

static void wait_for(struct scene *s, CUstream stream, CUevent event)
{
    struct vpmm_event_points points;
    vpmm_stream_handle handle = (vpmm_stream_handle)(void *)stream;
    vpmm_order_event_waiting(s->f.order, named(event), &points);
    assert_int_equal(sim_stream_wait_event(s->f.sim, stream, event, 0), CUDA_SUCCESS);
    vpmm_order_event_waited(s->f.order, named(event), handle, &points);
}

static void free_block(struct scene *s)
{
    fixture_free(&s->f, s->block, s->from);
}

/* Whether a request of `to` gets the block's memory. What it gets it uses. */
static bool is_given(struct scene *s, uint64_t pages)
{
    uint64_t p = fixture_malloc(&s->f, pages, s->to);
    bool is_same = p >= s->block && p < s->block + PAGES * s->f.page_bytes;
    fixture_work(&s->f, s->to, p, pages, true, NULL);
    fixture_free(&s->f, p, s->to);
    return is_same;
}

#define SCENE(name, steps, expected)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        struct scene scene, *s = &scene;                                                           \
        (void)state;                                                                               \
        scene_start(s);                                                                            \
        steps;                                                                                     \
        assert_true(is_given(s, PAGES) == (expected));                                             \
        scene_end(s);                                                                              \
    }

SCENE(
    nothing_orders_two_streams, { free_block(s); }, false)
SCENE(
    a_wait_for_a_record_behind_the_free_does,
    {
        free_block(s);
        record(s, s->event, s->from);
        wait_for(s, s->to, s->event);
    },
    true)
SCENE(
    a_record_before_the_free_does_not,
    {
        record(s, s->event, s->from);
        free_block(s);
        wait_for(s, s->to, s->event);
    },
    false)
SCENE(
    a_record_without_a_wait_does_not,
    {
        free_block(s);
        record(s, s->event, s->from);
    },
    false)
SCENE(
    order_leads_over_a_third_stream,
    {
        free_block(s);
        record(s, s->event, s->from);
        wait_for(s, s->third, s->event);
        record(s, s->second, s->third);
        wait_for(s, s->to, s->second);
    },
    true)
SCENE(
    order_does_not_lead_over_a_third_stream_that_waited_before,
    {
        record(s, s->event, s->from);
        wait_for(s, s->third, s->event);
        free_block(s);
        record(s, s->second, s->third);
        wait_for(s, s->to, s->second);
    },
    false)
SCENE(
    a_record_elsewhere_ends_what_the_event_told,
    {
        free_block(s);
        record(s, s->event, s->from);
        record(s, s->event, s->third);
        wait_for(s, s->to, s->event);
    },
    false)
SCENE(
    a_record_after_the_wait_changes_nothing,
    {
        free_block(s);
        record(s, s->event, s->from);
        wait_for(s, s->to, s->event);
        record(s, s->event, s->third);
    },
    true)
SCENE(
    an_event_that_ended_tells_nothing,
    {
        free_block(s);
        record(s, s->event, s->from);
        vpmm_order_event_gone(s->f.order, named(s->event));
        wait_for(s, s->to, s->event);
    },
    false)
SCENE(
    records_that_nobody_sees_end_all_learning,
    {
        free_block(s);
        record(s, s->event, s->from);
        vpmm_order_blind(s->f.order);
        wait_for(s, s->to, s->event);
    },
    false)

/* Another thread records the event between the driver's wait and the look at what it was for. */
static void a_wait_counts_for_the_record_that_it_was_made_for(void **state)
{
    struct scene scene, *s = &scene;
    struct vpmm_event_points points;
    (void)state;
    scene_start(s);
    record(s, s->event, s->third);
    free_block(s);
    record(s, s->event, s->from);
    vpmm_order_event_waiting(s->f.order, named(s->event), &points);
    assert_int_not_equal(points.n, 0);
    record(s, s->event, s->third);
    vpmm_order_event_waited(s->f.order, named(s->event), (vpmm_stream_handle)(void *)s->to,
                            &points);
    assert_false(is_given(s, PAGES));
    scene_end(s);
}

/* Of two frees that share a fence the event covers one. What lies in the pool keeps its turn, too.
 */
static void each_free_keeps_its_turn(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    uint64_t later = fixture_malloc(&s->f, PAGES, s->from);
    fixture_work(&s->f, s->from, later, PAGES, true, NULL);
    /* The first free of a stream has a fence of its own. */
    fixture_cycle(&s->f, 1, s->from);
    free_block(s);
    record(s, s->event, s->from);
    fixture_free(&s->f, later, s->from);
    wait_for(s, s->to, s->event);
    /* A request of another size empties the lanes into the pool. */
    fixture_free(&s->f, fixture_malloc(&s->f, 1, s->third), s->third);
    uint64_t first = fixture_malloc(&s->f, PAGES, s->to);
    uint64_t second = fixture_malloc(&s->f, PAGES, s->to);
    assert_int_equal(first, s->block);
    assert_int_not_equal(second, later);
    fixture_work(&s->f, s->to, first, PAGES, true, NULL);
    fixture_work(&s->f, s->to, second, PAGES, true, NULL);
    fixture_free(&s->f, first, s->to);
    fixture_free(&s->f, second, s->to);
    scene_end(s);
}

/* A part of the freed block serves as well, and no event is asked for that. */
static void a_smaller_request_gets_a_part(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    free_block(s);
    record(s, s->event, s->from);
    wait_for(s, s->to, s->event);
    uint64_t held = fixture_totals(&s->f).held_pages;
    uint64_t n_queries = sim_calls(s->f.sim, "cuEventQuery");
    assert_true(is_given(s, 1));
    assert_int_equal(fixture_totals(&s->f).held_pages, held);
    assert_in_range(sim_calls(s->f.sim, "cuEventQuery") - n_queries, 0, 1);
    scene_end(s);
}

/* A producer and a consumer, with events both ways and the host far ahead. */
static void a_ring_of_two_streams_needs_one_block(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    free_block(s);
    record(s, s->second, s->from);
    wait_for(s, s->to, s->second);
    for (int round = 0; round < 200; round++) {
        uint64_t p = fixture_malloc(&s->f, PAGES, s->to);
        assert_int_equal(p, s->block);
        fixture_work(&s->f, s->to, p, PAGES, true, NULL);
        record(s, s->event, s->to);
        wait_for(s, s->from, s->event);
        fixture_work(&s->f, s->from, p, PAGES, true, NULL);
        fixture_free(&s->f, p, s->from);
        record(s, s->second, s->from);
        wait_for(s, s->to, s->second);
    }
    assert_int_equal(fixture_totals(&s->f).held_pages, PAGES);
    scene_end(s);
}

/* Blocks of many sizes in such a ring: nothing is recorded or asked about for a request, because
 * all that is free is in order for it. */
static void a_ring_of_many_sizes_asks_and_records_nothing(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    free_block(s);
    record(s, s->second, s->from);
    wait_for(s, s->to, s->second);
    for (uint64_t round = 0; round < 40; round++) {
        uint64_t n_queries = sim_calls(s->f.sim, "cuEventQuery");
        uint64_t n_records = fixture_records(&s->f);
        uint64_t pages = 1 + round % PAGES;
        uint64_t p = fixture_malloc(&s->f, pages, s->to);
        assert_int_equal(sim_calls(s->f.sim, "cuEventQuery"), n_queries);
        assert_int_equal(fixture_records(&s->f), n_records);
        fixture_work(&s->f, s->to, p, pages, true, NULL);
        record(s, s->event, s->to);
        wait_for(s, s->from, s->event);
        fixture_free(&s->f, p, s->from);
        record(s, s->second, s->from);
        wait_for(s, s->to, s->second);
    }
    assert_int_equal(fixture_totals(&s->f).held_pages, PAGES);
    scene_end(s);
}

/* What a third stream freed may be complete, and then serves better than most of a large block. */
static void what_another_stream_freed_is_looked_at_too(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    uint64_t small = fixture_malloc(&s->f, 3, s->third);
    fixture_free(&s->f, small, s->third);
    free_block(s);
    record(s, s->event, s->from);
    wait_for(s, s->to, s->event);
    assert_int_equal(fixture_malloc(&s->f, 3, s->to), small);
    fixture_work(&s->f, s->to, small, 3, true, NULL);
    fixture_free(&s->f, small, s->to);
    scene_end(s);
}

/* More streams than are remembered: what is forgotten is not reused, and nothing else happens. */
static void what_exceeds_the_bound_is_forgotten(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    free_block(s);
    record(s, s->event, s->from);
    wait_for(s, s->to, s->event);
    for (unsigned i = 0; i < VPMM_POINTS_MAX; i++) {
        CUstream other = fixture_stream(&s->f, CU_STREAM_NON_BLOCKING);
        fixture_free(&s->f, fixture_malloc(&s->f, 2, other), other);
        record(s, s->second, other);
        wait_for(s, s->to, s->second);
    }
    assert_false(is_given(s, PAGES));
    scene_end(s);
}

/* A track that is dropped begins again with a turn that nobody was told of. */
static void a_stream_that_was_forgotten_begins_a_later_turn(void **state)
{
    struct scene scene, *s = &scene;
    (void)state;
    scene_start(s);
    const struct vpmm_stream *known =
        vpmm_order_remembered(s->f.order, (vpmm_stream_handle)(void *)s->third);
    assert_null(known);
    for (int i = 0; i < 5; i++) {
        fixture_free(&s->f, fixture_malloc(&s->f, 1, s->third), s->third);
        record(s, s->second, s->third);
    }
    wait_for(s, s->to, s->second);
    vpmm_order_stream_gone(s->f.order, (vpmm_stream_handle)(void *)s->from);
    free_block(s);
    assert_false(is_given(s, PAGES));
    scene_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_orders_two_streams),
        cmocka_unit_test(a_wait_for_a_record_behind_the_free_does),
        cmocka_unit_test(a_record_before_the_free_does_not),
        cmocka_unit_test(a_record_without_a_wait_does_not),
        cmocka_unit_test(order_leads_over_a_third_stream),
        cmocka_unit_test(order_does_not_lead_over_a_third_stream_that_waited_before),
        cmocka_unit_test(a_record_elsewhere_ends_what_the_event_told),
        cmocka_unit_test(a_record_after_the_wait_changes_nothing),
        cmocka_unit_test(an_event_that_ended_tells_nothing),
        cmocka_unit_test(records_that_nobody_sees_end_all_learning),
        cmocka_unit_test(a_wait_counts_for_the_record_that_it_was_made_for),
        cmocka_unit_test(each_free_keeps_its_turn),
        cmocka_unit_test(a_smaller_request_gets_a_part),
        cmocka_unit_test(a_ring_of_two_streams_needs_one_block),
        cmocka_unit_test(a_ring_of_many_sizes_asks_and_records_nothing),
        cmocka_unit_test(what_another_stream_freed_is_looked_at_too),
        cmocka_unit_test(what_exceeds_the_bound_is_forgotten),
        cmocka_unit_test(a_stream_that_was_forgotten_begins_a_later_turn),
    };
    return cmocka_run_group_tests_name("heap/follow", tests, NULL, NULL);
}
