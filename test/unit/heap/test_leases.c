/* SPDX-License-Identifier: MIT */
/* Blocks that other processes have open: they stay where they are, and a free of one takes effect
 * when the last of them is done. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint64_t id_of(struct fixture *f, uint64_t address)
{
    struct vpmm_region_view view;
    assert_int_equal(vpmm_heap_find(f->heap, address, &view), VPMM_OK);
    return view.owner.id;
}

static enum vpmm_region_state state_of(struct fixture *f, uint64_t address)
{
    struct vpmm_region_view view;
    assert_int_equal(vpmm_heap_find(f->heap, address, &view), VPMM_OK);
    return view.state;
}

static uint64_t withheld_pages(struct fixture *f)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f->heap, &counts);
    return counts.withheld_pages;
}

static enum vpmm_status lease(struct fixture *f, uint64_t address, uint64_t id)
{
    uint64_t start, end;
    return vpmm_heap_lease(f->heap, address, id, &start, &end);
}

static void export(struct fixture *f, uint64_t address, uint64_t id)
{
    uint64_t shared_bytes;
    assert_int_equal(vpmm_heap_export(f->heap, address, id, &shared_bytes), VPMM_OK);
}

/* A live block that is exported. */
static uint64_t exported(struct fixture *f, uint64_t pages, CUstream stream, uint64_t *id_out)
{
    uint64_t address = fixture_malloc(f, pages, stream);
    *id_out = id_of(f, address);
    export(f, address, *id_out);
    return address;
}

static void only_what_was_exported_is_leased(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t p = fixture_malloc(&f, 4, NULL), id = id_of(&f, p);
    assert_int_equal(lease(&f, p, id), VPMM_NOT_FOUND);
    export(&f, p, id);
    assert_int_equal(lease(&f, p, id + 1), VPMM_NOT_FOUND);
    assert_int_equal(lease(&f, p + f.page_bytes, id), VPMM_NOT_FOUND);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    vpmm_heap_unlease(f.heap, p, id);
    fixture_free(&f, p, NULL);
    assert_int_equal(lease(&f, p, id), VPMM_NOT_FOUND);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_int_equal(q, p);
    assert_int_equal(lease(&f, q, id_of(&f, q)), VPMM_NOT_FOUND);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

static void a_free_waits_for_the_last_lease(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    for (int with_stream = 0; with_stream < 2; with_stream++) {
        CUstream stream = with_stream ? fixture_stream(&f, CU_STREAM_NON_BLOCKING) : NULL;
        uint64_t id, p = exported(&f, 4, stream, &id);
        assert_int_equal(lease(&f, p, id), VPMM_OK);
        assert_int_equal(lease(&f, p, id), VPMM_OK);
        fixture_free(&f, p, stream);
        assert_int_equal(fixture_try_free(&f, p, stream), VPMM_NOT_FOUND);
        assert_int_equal(state_of(&f, p), VPMM_REGION_BUSY);
        assert_int_equal(withheld_pages(&f), 4);
        assert_int_equal(lease(&f, p, id), VPMM_NOT_FOUND);
        uint64_t other = fixture_malloc(&f, 4, stream);
        assert_int_not_equal(other, p);
        vpmm_heap_unlease(f.heap, p, id);
        assert_int_equal(state_of(&f, p), VPMM_REGION_BUSY);
        vpmm_heap_unlease(f.heap, p, id);
        assert_int_equal(state_of(&f, p), VPMM_REGION_BUSY);
        assert_int_equal(withheld_pages(&f), 0);
        vpmm_heap_reap(f.heap);
        assert_int_equal(state_of(&f, p), VPMM_REGION_HOLE);
        assert_int_equal(fixture_malloc(&f, 4, stream), p);
        fixture_free(&f, p, stream);
        fixture_free(&f, other, stream);
    }
    fixture_teardown(&f);
}

static void a_lease_that_ends_first_holds_nothing_up(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t id, p = exported(&f, 4, NULL, &id);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    vpmm_heap_unlease(f.heap, p, id);
    vpmm_heap_unlease(f.heap, p, id);
    assert_int_equal(state_of(&f, p), VPMM_REGION_LIVE);
    fixture_free(&f, p, NULL);
    assert_int_equal(state_of(&f, p), VPMM_REGION_HOLE);
    fixture_teardown(&f);
}

/* Whoever kept a descriptor could read what lies there next. */
static void what_was_leased_is_never_used_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t id, p = exported(&f, 4, NULL, &id), q = exported(&f, 4, NULL, &id);
    assert_int_equal(lease(&f, q, id), VPMM_OK);
    vpmm_heap_unlease(f.heap, q, id);
    uint64_t releases = sim_calls(f.sim, "cuMemRelease");
    fixture_free(&f, p, NULL);
    assert_int_equal(state_of(&f, p), VPMM_REGION_FREE);
    assert_int_equal(sim_calls(f.sim, "cuMemRelease"), releases);
    fixture_free(&f, q, NULL);
    assert_int_equal(sim_calls(f.sim, "cuMemRelease"), releases + 4);
    assert_int_equal(fixture_totals(&f).held_pages, 4);
    fixture_teardown(&f);
}

/* Nothing is unmapped under it, and a request that needs the memory waits for it. */
static void what_was_leased_is_given_back_after_its_last_work(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    volatile bool gate = false;
    CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t id, p = exported(&f, 4, NULL, &id);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    vpmm_heap_unlease(f.heap, p, id);
    fixture_work(&f, stream, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    vpmm_heap_reap(f.heap);
    assert_int_equal(state_of(&f, p), VPMM_REGION_BUSY);
    struct vpmm_pool_totals totals = fixture_totals(&f);
    assert_int_equal(vpmm_heap_busy_pages(f.heap, &totals), 4);
    gate = true;
    (void)sim_drain(f.sim);
    fixture_cycle(&f, 1, NULL);
    assert_int_equal(state_of(&f, p + 2 * f.page_bytes), VPMM_REGION_HOLE);
    fixture_teardown(&f);
}

/* The work that the free did not wait for is still under way when the lease ends. */
static void the_fence_of_the_free_still_counts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    volatile bool gate = false;
    CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t id, p = exported(&f, 4, NULL, &id);
    fixture_work(&f, stream, p, 4, true, &gate);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    fixture_free(&f, p, NULL);
    vpmm_heap_unlease(f.heap, p, id);
    uint64_t other = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(other, p);
    gate = true;
    (void)sim_drain(f.sim);
    fixture_free(&f, other, NULL);
    fixture_teardown(&f);
}

/* Neither trimming nor a lack of memory touches it, and nobody waits for it. */
static void what_is_withheld_is_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t id, start, end, p = exported(&f, 4, NULL, &id), q;
    assert_int_equal(vpmm_heap_lease(f.heap, p, id, &start, &end), VPMM_OK);
    assert_true(start <= p && p + 4 * f.page_bytes <= end);
    struct vpmm_shown_extent before[8], after[8];
    size_t n = vpmm_heap_leased_extents(f.heap, p, start, before, 8);
    assert_true(n > 0);
    fixture_free(&f, p, NULL);
    struct vpmm_pool_totals totals = fixture_totals(&f);
    assert_int_equal(totals.busy_pages, 4);
    assert_int_equal(vpmm_heap_busy_pages(f.heap, &totals), 0);
    (void)vpmm_heap_trim(f.heap, UINT64_MAX);
    uint64_t all_pages = (uint64_t)64 * GIB / f.page_bytes;
    uint64_t waits = sim_calls(f.sim, "cuEventSynchronize");
    assert_int_equal(fixture_try_malloc(&f, all_pages, NULL, &q), VPMM_NO_MEMORY);
    assert_int_equal(sim_calls(f.sim, "cuEventSynchronize"), waits);
    assert_int_equal(vpmm_heap_leased_extents(f.heap, p, start, after, 8), n);
    assert_memory_equal(before, after, n * sizeof before[0]);
    vpmm_heap_unlease(f.heap, p, id);
    fixture_teardown(&f);
}

static void the_end_of_a_context_is_a_free(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t id, p = exported(&f, 4, NULL, &id);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    vpmm_heap_context_gone(f.heap, vpmm_context_id(f.context));
    assert_int_equal(state_of(&f, p), VPMM_REGION_BUSY);
    assert_int_equal(withheld_pages(&f), 4);
    vpmm_heap_unlease(f.heap, p, id);
    vpmm_heap_reap(f.heap);
    assert_int_equal(state_of(&f, p), VPMM_REGION_HOLE);
    fixture_teardown(&f);
}

static void without_metadata_there_is_no_lease(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t id, p = exported(&f, 4, NULL, &id);
    vpmm_atomic_store(&f.maps_until_failure, 1);
    assert_int_equal(lease(&f, p, id), VPMM_NO_METADATA);
    vpmm_atomic_store(&f.maps_until_failure, 0);
    assert_int_equal(lease(&f, p, id), VPMM_OK);
    vpmm_heap_unlease(f.heap, p, id);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void many_leases_end_in_any_order(void **state)
{
    (void)state;
    enum {
        N = 40
    };
    struct fixture f;
    fixture_setup_eager(&f);
    uint64_t blocks[N], ids[N];
    struct vpmm_heap_counts counts;
    for (int i = 0; i < N; i++) {
        blocks[i] = exported(&f, 1, NULL, &ids[i]);
        assert_int_equal(lease(&f, blocks[i], ids[i]), VPMM_OK);
    }
    for (int i = 0; i < N; i++)
        fixture_free(&f, blocks[i], NULL);
    for (int i = 0; i < N; i++) {
        int at = i * 7 % N;
        vpmm_heap_counts(f.heap, &counts);
        assert_int_equal(counts.leased_regions, N - i);
        assert_int_equal(counts.withheld_pages, N - i);
        vpmm_heap_unlease(f.heap, blocks[at], ids[at]);
        vpmm_heap_reap(f.heap);
        assert_int_equal(state_of(&f, blocks[at]), VPMM_REGION_HOLE);
        fixture_audit(&f);
    }
    fixture_teardown(&f);
}

/* What the thread that leases is told of the thread that frees. */
struct race {
    struct fixture *fixture;
    vpmm_atomic64 address, id;
    vpmm_atomic32 is_over;
    vpmm_atomic64 n_leases, n_wrong;
};

/* As long as a block is leased, it is nobody else's. */
static void *lease_on(void *self)
{
    struct race *race = self;
    struct vpmm_heap *heap = race->fixture->heap;
    uint64_t start, end;
    while (!vpmm_atomic_load(&race->is_over)) {
        uint64_t address = vpmm_atomic_load(&race->address), id = vpmm_atomic_load(&race->id);
        struct vpmm_region_view view;
        if (!address || vpmm_heap_lease(heap, address, id, &start, &end))
            continue;
        vpmm_atomic_add(&race->n_leases, 1);
        for (int i = 0; i < 20; i++)
            if (vpmm_heap_find(heap, address, &view) || view.owner.id != id ||
                (view.state != VPMM_REGION_LIVE && view.state != VPMM_REGION_BUSY))
                vpmm_atomic_add(&race->n_wrong, 1);
        vpmm_heap_unlease(heap, address, id);
    }
    return NULL;
}

static void a_lease_and_a_free_may_meet(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    fixture_setup_eager(&f);
    struct race race = {.fixture = &f};
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = f.context};
    assert_int_equal(pthread_create(&thread, NULL, lease_on, &race), 0);
    for (uint64_t i = 0; i < 2000 || vpmm_atomic_load(&race.n_leases) == 0; i++) {
        uint64_t p, id;
        enum vpmm_status waited;
        assert_int_equal(vpmm_heap_malloc(f.heap, &request, &p), VPMM_OK);
        id = id_of(&f, p);
        export(&f, p, id);
        vpmm_atomic_store(&race.id, id);
        vpmm_atomic_store(&race.address, p);
        assert_int_equal(vpmm_heap_free(f.heap, p, NULL, &waited), VPMM_OK);
    }
    vpmm_atomic_store(&race.is_over, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(vpmm_atomic_load(&race.n_wrong), 0);
    assert_int_equal(withheld_pages(&f), 0);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_exported_is_leased),
        cmocka_unit_test(a_free_waits_for_the_last_lease),
        cmocka_unit_test(a_lease_that_ends_first_holds_nothing_up),
        cmocka_unit_test(what_was_leased_is_never_used_again),
        cmocka_unit_test(what_was_leased_is_given_back_after_its_last_work),
        cmocka_unit_test(the_fence_of_the_free_still_counts),
        cmocka_unit_test(what_is_withheld_is_left_alone),
        cmocka_unit_test(the_end_of_a_context_is_a_free),
        cmocka_unit_test(without_metadata_there_is_no_lease),
        cmocka_unit_test(many_leases_end_in_any_order),
        cmocka_unit_test(a_lease_and_a_free_may_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
