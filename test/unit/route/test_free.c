/* SPDX-License-Identifier: MIT */
/* The router and one address: whose it is, and what may be given back. */
#include "fixture.h"

static enum vpmm_free_answer free_at(uint64_t address, vpmm_stream_handle stream)
{
    enum vpmm_status status = VPMM_FAILED;
    enum vpmm_free_answer answer = vpmm_router_free(fixture.router, address, stream, &status);
    assert_int_equal(status, answer == VPMM_FREED ? VPMM_OK : VPMM_FAILED);
    return answer;
}

static void foreign_addresses_are_not_ours(void **state)
{
    (void)state;
    assert_int_equal(free_at(fakes.heaps[0].base, NULL), VPMM_FREE_NOT_OURS);
    (void)sync_malloc(4 * MIB);
    assert_int_equal(free_at(0, NULL), VPMM_FREE_NOT_OURS);
    assert_int_equal(free_at(fakes.heaps[1].base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    assert_int_equal(fakes.heaps[0].freed_address, 0);
    fakes.heaps[0].free_status = VPMM_NOT_FOUND;
    assert_int_equal(free_at(fakes.heaps[0].base + 5, NULL), VPMM_FREE_NOT_OURS);
    assert_int_equal(fakes.heaps[0].freed_address, fakes.heaps[0].base + 5);
}

static void a_free_goes_to_the_heap_of_its_address_on_any_stream(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    fakes.current = -1;
    assert_int_equal(free_at(fakes.heaps[1].base, NULL), VPMM_FREED);
    assert_int_equal(fakes.heaps[1].freed_address, fakes.heaps[1].base);
    assert_false(fakes.heaps[1].has_freed_stream);
    assert_int_equal(free_at(fakes.heaps[1].base, fake_stream(2)), VPMM_FREED);
    assert_true(fakes.heaps[1].has_freed_stream);
    assert_int_equal(fakes.heaps[1].freed_stream.id, 12);
    assert_int_equal(fakes.heaps[0].freed_address, 0);
}

static void a_stream_that_cannot_be_had_or_captures_frees_nothing(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    fakes.is_capturing = true;
    assert_int_equal(free_at(fakes.heaps[0].base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    fakes.is_capturing = false;
    static const enum vpmm_status refusals[] = {VPMM_INVALID, VPMM_NO_CONTEXT, VPMM_CONTEXT_GONE,
                                                VPMM_CAPTURED};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        fakes.stream_status = refusals[i];
        assert_int_equal(free_at(fakes.heaps[0].base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    }
    assert_int_equal(fakes.heaps[0].given_up_address, 0);
    assert_int_equal(fakes.heaps[0].freed_address, 0);
    assert_int_equal(free_at(fakes.heaps[0].base, NULL), VPMM_FREED);
}

static enum vpmm_free_answer free_anyhow(uint64_t address, vpmm_stream_handle stream)
{
    enum vpmm_status status = VPMM_FAILED;
    enum vpmm_free_answer answer =
        vpmm_router_free_anyhow(fixture.router, address, stream, &status);
    assert_int_equal(status, answer == VPMM_FREED ? VPMM_OK : VPMM_FAILED);
    return answer;
}

/* Every status but those that bare CUDA has as well, and that of our own metadata. */
static void what_the_driver_does_not_explain_is_asked_about_first(void **state)
{
    (void)state;
    (void)async_malloc(4 * MIB, 0);
    struct vpmm_heap *heap = &fakes.heaps[0];
    for (int status = VPMM_OK + 1; status < VPMM_STATUS_COUNT; status++) {
        bool is_refusal = status == VPMM_INVALID || status == VPMM_NO_CONTEXT ||
                          status == VPMM_CONTEXT_GONE || status == VPMM_CAPTURED;
        if (is_refusal || status == VPMM_NO_METADATA)
            continue;
        fakes.stream_status = (enum vpmm_status)status;
        heap->unknown_address = 0;
        assert_int_equal(free_at(heap->base, fake_stream(0)), VPMM_FREE_IN_DOUBT);
        assert_int_equal(heap->unknown_address, 0);
        assert_int_equal(free_anyhow(heap->base, fake_stream(0)), VPMM_FREED);
        assert_int_equal(heap->unknown_address, heap->base);
    }
    assert_int_equal(heap->given_up_address, 0);
    assert_int_equal(heap->freed_address, 0);
    heap->free_status = VPMM_NOT_FOUND;
    assert_int_equal(free_anyhow(heap->base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    assert_int_equal(free_anyhow(0, fake_stream(0)), VPMM_FREE_NOT_OURS);
}

/* The driver tells the second time, and then it may be a stream that is refused. */
static void the_second_question_counts(void **state)
{
    (void)state;
    (void)async_malloc(4 * MIB, 0);
    struct vpmm_heap *heap = &fakes.heaps[0];
    assert_int_equal(free_anyhow(heap->base, fake_stream(0)), VPMM_FREED);
    assert_int_equal(heap->freed_address, heap->base);
    assert_int_equal(heap->unknown_address, 0);
    heap->freed_address = 0;
    fakes.stream_status = VPMM_CONTEXT_GONE;
    assert_int_equal(free_anyhow(heap->base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    fakes.stream_status = VPMM_OK;
    fakes.is_capturing = true;
    assert_int_equal(free_anyhow(heap->base, fake_stream(0)), VPMM_FREE_NOT_OURS);
    assert_int_equal(heap->freed_address, 0);
}

/* Bare CUDA would have freed it. */
static void what_there_is_no_metadata_for_is_given_up(void **state)
{
    (void)state;
    (void)async_malloc(4 * MIB, 0);
    fakes.stream_status = VPMM_NO_METADATA;
    assert_int_equal(free_at(fakes.heaps[0].base, fake_stream(0)), VPMM_FREED);
    assert_int_equal(fakes.heaps[0].given_up_address, fakes.heaps[0].base);
    assert_int_equal(fakes.heaps[0].freed_address, 0);
    assert_int_equal(fakes.heaps[0].unknown_address, 0);
    fakes.heaps[0].free_status = VPMM_NOT_FOUND;
    assert_int_equal(free_at(fakes.heaps[0].base, fake_stream(0)), VPMM_FREE_NOT_OURS);
}

static void what_the_wait_met_is_passed_on(void **state)
{
    (void)state;
    enum vpmm_status status = VPMM_OK;
    (void)sync_malloc(4 * MIB);
    fakes.heaps[0].wait_status = VPMM_BROKEN;
    assert_int_equal(vpmm_router_free(fixture.router, fakes.heaps[0].base, NULL, &status),
                     VPMM_FREED);
    assert_int_equal(status, VPMM_BROKEN);
}

static void regions_of_our_address_space_are_found_live_or_not(void **state)
{
    (void)state;
    struct vpmm_region_view view = {.pages = 99};
    int device = -1;
    assert_false(vpmm_router_find(fixture.router, fakes.heaps[1].base, &view, &device));
    assert_int_equal(view.pages, 99);
    assert_int_equal(device, -1);
    device = 0;
    assert_int_equal(vpmm_router_live_bytes(fixture.router, fakes.heaps[1].base, &device), 0);
    assert_int_equal(device, -1);
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    fakes.heaps[1].state = VPMM_REGION_FREE;
    assert_true(vpmm_router_find(fixture.router, fakes.heaps[1].base + 5, &view, &device));
    assert_int_equal(view.state, VPMM_REGION_FREE);
    fakes.heaps[1].state = VPMM_REGION_LIVE;
    assert_true(vpmm_router_find(fixture.router, fakes.heaps[1].base + 5, &view, &device));
    assert_int_equal(view.address, fakes.heaps[1].base);
    assert_int_equal(device, 1);
    device = -1;
    assert_int_equal(vpmm_router_live_bytes(fixture.router, fakes.heaps[1].base, &device),
                     FAKE_LIVE_BYTES);
    assert_int_equal(device, 1);
}

static bool relieve(int device)
{
    struct vpmm_relief relief = {.bytes = MIB};
    return vpmm_router_relieve(fixture.router, device, &relief);
}

static void memory_goes_back_on_the_current_device(void **state)
{
    (void)state;
    for (int i = 0; i < FAKE_DEVICES; i++)
        fakes.heaps[i].releasable = (uint64_t)(i + 1) * MIB;
    fakes.context_status = VPMM_BROKEN;
    assert_false(relieve(VPMM_DEVICE_OF_CONTEXT));
    assert_int_equal(vpmm_router_reusable_bytes(fixture.router), 0);
    fakes.context_status = VPMM_OK;
    (void)async_malloc(4 * MIB, 1);
    assert_false(relieve(VPMM_DEVICE_OF_CONTEXT));
    assert_int_equal(vpmm_router_reusable_bytes(fixture.router), 0);
    fakes.current = 1;
    assert_int_equal(vpmm_router_reusable_bytes(fixture.router), 2 * MIB);
    assert_true(relieve(VPMM_DEVICE_OF_CONTEXT));
    assert_int_equal(fakes.heaps[1].trimmed, 2 * MIB);
    fakes.heaps[1].releasable = 0;
    assert_false(relieve(VPMM_DEVICE_OF_CONTEXT));
    fakes.current = -1;
    assert_int_equal(vpmm_router_reusable_bytes(fixture.router), 0);
    fakes.heaps[1].releasable = MIB;
    assert_false(relieve(0));
    assert_true(relieve(1));
}

/* No capture of the calling thread ends because the program asks for something here. */
static void the_program_is_served_with_captures_at_ease(void **state)
{
    (void)state;
    uint64_t given_back = 1;
    (void)sync_malloc(4 * MIB);
    struct vpmm_heap *heap = &fakes.heaps[0];
    assert_true(vpmm_router_trim(fixture.router, heap, 0, &given_back));
    assert_int_equal(given_back, 0);
    assert_int_equal(heap->n_trims_to_nothing, 1);
    assert_int_equal(vpmm_router_reap(fixture.router, heap), VPMM_FAILED);
    assert_int_equal(heap->n_synchronizations, 1);
    assert_false(fakes.is_relaxed);
    fakes.relax_status = VPMM_SHUT_DOWN;
    assert_false(vpmm_router_trim(fixture.router, heap, 0, &given_back));
    assert_int_equal(vpmm_router_reap(fixture.router, heap), VPMM_SHUT_DOWN);
    assert_int_equal(heap->n_trims_to_nothing + heap->n_synchronizations, 2);
}

/* How often the heap of `device` was trimmed by so many looks. */
static unsigned trims_of(struct vpmm_quiet *quiet, int device, int n_looks)
{
    unsigned before = fakes.heaps[device].n_trims_to_nothing;
    while (n_looks-- > 0)
        vpmm_router_give_back(fixture.router, quiet);
    assert_false(fakes.is_relaxed);
    return fakes.heaps[device].n_trims_to_nothing - before;
}

static void idle_memory_goes_back(void **state)
{
    (void)state;
    struct vpmm_quiet quiet = {.looks_min = 4};
    struct vpmm_heap_counts *counts = &fakes.heaps[0].counts;
    vpmm_router_give_back(fixture.router, &quiet);
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    fakes.heaps[0].counts.mallocs = 1;
    assert_int_equal(trims_of(&quiet, 0, 4), 0);
    assert_int_equal(trims_of(&quiet, 0, 1), 1);
    assert_int_equal(trims_of(&quiet, 0, 3), 0);
    assert_int_equal(trims_of(&quiet, 0, 1), 1);
    uint64_t *const kinds[] = {&counts->mallocs, &counts->frees, &counts->failures};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trims_of(&quiet, 0, 3), 0);
        ++*kinds[i];
        assert_int_equal(trims_of(&quiet, 0, 4), 0);
        assert_int_equal(trims_of(&quiet, 0, 1), 1);
    }
    assert_int_equal(fakes.heaps[1].n_trims_to_nothing, 8);
    fakes.relax_status = VPMM_SHUT_DOWN;
    assert_int_equal(trims_of(&quiet, 0, 8), 0);
}

static void a_router_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    struct vpmm_router *other = NULL;
    size_t before = fixture.mapped_bytes;
    fakes.order_status = VPMM_NO_METADATA;
    assert_int_equal(vpmm_router_create(&fixture.config, &fake_driver, &fixture_memory,
                                        &fixture_first_heap, &other),
                     VPMM_NO_METADATA);
    assert_int_equal(fixture.mapped_bytes, before);
    fixture.is_memory_scarce = true;
    assert_int_equal(vpmm_router_create(&fixture.config, &fake_driver, &fixture_memory,
                                        &fixture_first_heap, &other),
                     VPMM_NO_METADATA);
    fixture.is_memory_scarce = false;
    assert_null(other);
    vpmm_router_destroy(NULL);
}

static void a_free_goes_into_the_cache_of_the_heap_that_has_it(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    fakes.caches = true;
    assert_int_equal(free_at(fakes.heaps[1].base, fake_stream(2)), VPMM_FREED);
    assert_int_equal(fakes.heaps[1].cached_of, 12);
    assert_int_equal(fakes.heaps[0].cached_of, 0);
    assert_int_equal(fakes.heaps[1].freed_address, 0);
    assert_int_equal(free_at(fakes.heaps[0].base, NULL), VPMM_FREED);
    assert_int_equal(fakes.heaps[0].cached_of, 0);
    assert_int_equal(fakes.heaps[0].freed_address, fakes.heaps[0].base);
    fakes.heaps[1].free_status = VPMM_NOT_FOUND;
    assert_int_equal(free_at(fakes.heaps[1].base + 5, fake_stream(2)), VPMM_FREE_NOT_OURS);
}

static void heaps_are_looked_up_by_device(void **state)
{
    (void)state;
    assert_null(vpmm_router_heap(fixture.router, 0));
    (void)sync_malloc(4 * MIB);
    assert_ptr_equal(vpmm_router_heap(fixture.router, 0), &fakes.heaps[0]);
    assert_null(vpmm_router_heap(fixture.router, 1));
    assert_null(vpmm_router_heap(fixture.router, -1));
    assert_null(vpmm_router_heap(fixture.router, VPMM_DEVICES_MAX));
    assert_ptr_equal(vpmm_router_order(fixture.router), &fakes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(foreign_addresses_are_not_ours),
        FIXTURE_TEST(a_free_goes_to_the_heap_of_its_address_on_any_stream),
        FIXTURE_TEST(a_stream_that_cannot_be_had_or_captures_frees_nothing),
        FIXTURE_TEST(what_the_driver_does_not_explain_is_asked_about_first),
        FIXTURE_TEST(the_second_question_counts),
        FIXTURE_TEST(what_there_is_no_metadata_for_is_given_up),
        FIXTURE_TEST(what_the_wait_met_is_passed_on),
        FIXTURE_TEST(regions_of_our_address_space_are_found_live_or_not),
        FIXTURE_TEST(memory_goes_back_on_the_current_device),
        FIXTURE_TEST(idle_memory_goes_back),
        FIXTURE_TEST(the_program_is_served_with_captures_at_ease),
        FIXTURE_TEST(a_router_that_cannot_be_made_leaves_nothing),
        FIXTURE_TEST(a_free_goes_into_the_cache_of_the_heap_that_has_it),
        FIXTURE_TEST(heaps_are_looked_up_by_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
