/* SPDX-License-Identifier: MIT */
/* A failed driver call changes nothing that anybody can see: weaknesses W2 to W5, each call of each
 * kind failing in turn, once the growth, the move, the wait and the unmap. */
#include "blocks.h"

#include <string.h>

struct scene {
    struct fixture f;
    CUstream stream;
    struct block kept; /* live throughout */
};

static void scene_begin(struct scene *scene)
{
    struct fixture_params params;
    rules_params(&params);
    rules_forget();
    params.heap.extent_pages_max = 2;
    fixture_setup(&scene->f, &params);
    scene->stream = fixture_stream(&scene->f, CU_STREAM_NON_BLOCKING);
}

static void scene_end(struct scene *scene)
{
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(scene->f.sim));
    assert_true(block_is_intact(&scene->f, &scene->kept));
    fixture_free(&scene->f, scene->kept.address, scene->stream);
    SAME(0, blocks_wrong());
    fixture_teardown(&scene->f);
}

static const char *const steps[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
static const CUresult codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_DEVICE,
                                 CUDA_ERROR_NOT_READY};

/* `prepare` leaves a heap in which a request of 12 pages needs driver calls of the kind. */
static bool strike(void (*prepare)(struct scene *), const char *name, CUresult code, uint64_t nth)
{
    struct scene scene;
    struct picture before;
    uint64_t address = 42;
    scene_begin(&scene);
    prepare(&scene);
    picture_take(&scene.f, &before);
    sim_fault_set(scene.f.sim, name, nth, code, true);
    enum vpmm_status status = fixture_try_malloc(&scene.f, 12, scene.stream, &address);
    bool struck = sim_fault_struck(scene.f.sim, name);
    sim_fault_clear(scene.f.sim, NULL);
    if (struck) {
        assert_int_not_equal(status, VPMM_OK);
        SAME(42, address);
        picture_compare(&scene.f, &before);
        address = fixture_malloc(&scene.f, 12, scene.stream);
    }
    struct block block = {address, 12, 5};
    block_write(&scene.f, scene.stream, &block, NULL);
    block_check(&scene.f, scene.stream, &block);
    fixture_free(&scene.f, block.address, scene.stream);
    scene_end(&scene);
    return struck;
}

static void strike_everywhere(void (*prepare)(struct scene *), uint64_t at_least)
{
    uint64_t struck = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (size_t j = 0; j < sizeof codes / sizeof *codes; j++)
            for (uint64_t nth = 1; strike(prepare, steps[i], codes[j], nth); nth++)
                struck++;
    assert_in_range(struck, at_least, UINT64_MAX);
}

static void keep(struct scene *scene)
{
    scene->kept = (struct block){fixture_malloc(&scene->f, 2, scene->stream), 2, 9};
    block_write(&scene->f, scene->stream, &scene->kept, NULL);
}

static void for_growth(struct scene *scene)
{
    keep(scene);
}

static void weakness_w2_failed_growth_leaves_no_trace(void **state)
{
    (void)state;
    strike_everywhere(for_growth, 3 * (6 + 6 + 1));
}

/* Eight pages to move, pending on the stream itself, and four to make. */
static void for_a_move(struct scene *scene)
{
    uint64_t p = fixture_malloc(&scene->f, 8, scene->stream);
    keep(scene);
    struct block block = {p, 8, 1};
    block_write(&scene->f, scene->stream, &block, NULL);
    fixture_free(&scene->f, p, scene->stream);
}

static void weakness_w3_failed_moves_leave_no_trace(void **state)
{
    (void)state;
    strike_everywhere(for_a_move, 3 * (2 + 6 + 1));
}

static void weakness_w4_a_failed_wait_leaves_no_trace(void **state)
{
    (void)state;
    struct scene scene;
    struct picture before;
    volatile bool gate = false;
    uint64_t address = 42;
    scene_begin(&scene);
    keep(&scene);
    CUstream other = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&scene.f, 100, other), 100, 1};
    block_write(&scene.f, other, &p, &gate);
    fixture_free(&scene.f, p.address, other);
    picture_take(&scene.f, &before);
    sim_fault_set(scene.f.sim, "cuStreamWaitEvent", 1, CUDA_ERROR_UNKNOWN, true);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(&scene.f, 110, scene.stream, &address));
    assert_true(sim_fault_struck(scene.f.sim, "cuStreamWaitEvent"));
    SAME(42, address);
    picture_compare(&scene.f, &before);
    SAME(0, heap_count_stream_waits(&scene.f));
    sim_fault_clear(scene.f.sim, NULL);
    address = fixture_malloc(&scene.f, 110, scene.stream);
    SAME(1, heap_count_stream_waits(&scene.f));
    gate = true;
    fixture_free(&scene.f, address, scene.stream);
    scene_end(&scene);
}

/* What could not be unmapped stays out of use until it is, and nothing is ever mapped over it. */
static void weakness_w5_a_failed_unmap_is_quarantined(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene);
    struct fixture *f = &scene.f;
    for_a_move(&scene);
    uint64_t moved = fixture_malloc(f, 12, scene.stream);
    SAME(8, fixture_totals(f).zombie_pages);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f->sim));
    sim_fault_set(f->sim, "cuMemUnmap", 1, CUDA_ERROR_INVALID_VALUE, true);
    vpmm_heap_reap(f->heap);
    fixture_audit(f);
    assert_true(sim_fault_struck(f->sim, "cuMemUnmap"));
    SAME(8, fixture_totals(f).quarantined_pages);
    uint64_t p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = fixture_malloc(f, 8, scene.stream);
        struct block block = {p[i], 8, (uint64_t)i};
        block_write(f, scene.stream, &block, NULL);
        block_check(f, scene.stream, &block);
    }
    SAME(8, fixture_totals(f).quarantined_pages);
    sim_fault_clear(f->sim, NULL);
    (void)vpmm_heap_trim(f->heap, 0);
    SAME(0, fixture_totals(f).quarantined_pages);
    for (int i = 0; i < 4; i++)
        fixture_free(f, p[i], scene.stream);
    fixture_free(f, moved, scene.stream);
    scene_end(&scene);
}

/* Address space runs out where one more root is needed. */
static void a_root_that_cannot_be_had_leaves_no_trace(void **state)
{
    (void)state;
    struct scene scene = {.kept = {.pages = 6, .pattern = 9}};
    struct fixture_params params;
    struct picture before;
    uint64_t address = 42;
    rules_params(&params);
    rules_forget();
    params.heap.root_bytes = 8 * params.heap.page_bytes;
    fixture_setup(&scene.f, &params);
    scene.stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    scene.kept.address = fixture_malloc(&scene.f, 6, scene.stream);
    block_write(&scene.f, scene.stream, &scene.kept, NULL);
    picture_take(&scene.f, &before);
    sim_fault_set(scene.f.sim, "cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    assert_int_not_equal(fixture_try_malloc(&scene.f, 12, scene.stream, &address), VPMM_OK);
    assert_true(sim_fault_struck(scene.f.sim, "cuMemAddressReserve"));
    SAME(42, address);
    picture_compare(&scene.f, &before);
    sim_fault_clear(scene.f.sim, NULL);
    address = fixture_malloc(&scene.f, 12, scene.stream);
    SAME(2, fixture_totals(&scene.f).roots);
    fixture_free(&scene.f, address, scene.stream);
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weakness_w2_failed_growth_leaves_no_trace),
        cmocka_unit_test(weakness_w3_failed_moves_leave_no_trace),
        cmocka_unit_test(weakness_w4_a_failed_wait_leaves_no_trace),
        cmocka_unit_test(weakness_w5_a_failed_unmap_is_quarantined),
        cmocka_unit_test(a_root_that_cannot_be_had_leaves_no_trace),
    };
    return cmocka_run_group_tests_name("rules/faults", tests, NULL, NULL);
}
