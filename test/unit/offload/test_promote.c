/* SPDX-License-Identifier: MIT */
/* Direct groups that are used much move to the device, within their part of the budget, and back:
 * no read is wrong, and nothing moves under work. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BUDGET 14u
#define EXPERTS 6u
#define FIRST 10u /* the number of the first expert */
#define ROOM (4 * CHUNK)

/* Ten streamed groups, and six direct ones of two chunks each, of which two may be promoted. */
static void setup(struct scene *scene)
{
    scene_setup(scene);
    scene->params.promote_bytes = ROOM;
    scene_make(scene, BUDGET);
    scene_add_many(scene, FIRST, 2);
    for (uint32_t i = 0; i < EXPERTS; i++)
        (void)scene_add(scene, VPMM_OFFLOAD_DIRECT, 2 * CHUNK);
    scene_order(scene);
    scene_seal(scene);
}

/* A pass in which these two experts are read. */
static enum vpmm_status try_pass(struct scene *scene, uint32_t a, uint32_t b)
{
    vpmm_stream_handle stream = scene_handle(scene->stream);
    enum vpmm_status status = vpmm_offload_begin(scene->offload, stream);
    if (status)
        return status;
    for (uint32_t i = 0; !status && i < scene->n_steps; i++) {
        status = scene_step(scene, scene->order[i], scene->stream);
        if (!status && i == 3)
            status = scene_step(scene, FIRST + a, scene->stream);
        if (!status && i == 6)
            status = scene_step(scene, FIRST + b, scene->stream);
    }
    enum vpmm_status ended = vpmm_offload_end(scene->offload, stream);
    return status ? status : ended;
}

static void pass(struct scene *scene, uint32_t a, uint32_t b)
{
    enum vpmm_status status = try_pass(scene, a, b);
    if (status)
        fail_msg("%s: %s", vpmm_status_text(status), scene->message);
    assert_true(scene_used(scene) <= BUDGET * CHUNK);
}

static void passes(struct scene *scene, int n, uint32_t a, uint32_t b)
{
    for (int i = 0; i < n; i++)
        pass(scene, a, b);
}

static void test_promoted(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene);
    passes(&scene, 100, 1, 2);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_int_equal(stats.promotions, 2);
    assert_int_equal(stats.promoted_bytes, ROOM);
    assert_int_equal(stats.direct_bytes, EXPERTS * 2 * CHUNK);
    assert_int_equal(stats.held_bytes, stats.resident_bytes + stats.ring_bytes + ROOM);
    passes(&scene, 200, 4, 5);
    stats = scene_stats(&scene);
    assert_int_equal(stats.promotions, 4);
    assert_int_equal(stats.demotions, 2);
    assert_int_equal(stats.promoted_bytes, ROOM);
    assert_true(stats.held_peak_bytes <= BUDGET * CHUNK);
    scene_teardown(&scene);
}

/* Where nothing is to be moved, nothing waits. */
static void test_steady(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene);
    passes(&scene, 100, 1, 2);
    struct vpmm_offload_stats before = scene_stats(&scene);
    for (uint32_t i = 0; i < 200; i++)
        pass(&scene, 1 + i % 2, 3 + i % 3);
    passes(&scene, 100, 1, 2);
    struct vpmm_offload_stats after = scene_stats(&scene);
    assert_int_equal(after.host_waits, before.host_waits);
    assert_int_equal(after.vmm_calls, before.vmm_calls);
    assert_int_equal(after.promotions, 2);
    scene_teardown(&scene);
}

/* A pass whose last work is many reads of an expert on a stream of their own. */
static void pass_with_reads(struct scene *scene, uint32_t expert, CUstream other)
{
    vpmm_stream_handle stream = scene_handle(scene->stream);
    assert_int_equal(vpmm_offload_begin(scene->offload, stream), VPMM_OK);
    for (uint32_t i = 0; i < scene->n_steps; i++)
        assert_int_equal(scene_step(scene, i, scene->stream), VPMM_OK);
    assert_int_equal(vpmm_offload_use(scene->offload, FIRST + expert, scene_handle(other)),
                     VPMM_OK);
    for (int i = 0; i < 60; i++)
        scene_read(scene, FIRST + expert, other);
    assert_int_equal(vpmm_offload_done(scene->offload, FIRST + expert, scene_handle(other)),
                     VPMM_OK);
    assert_int_equal(vpmm_offload_end(scene->offload, stream), VPMM_OK);
}

/* Memory that the program lacks is given back while reads of it are queued, but not under them. */
static void test_pressure(void **state)
{
    (void)state;
    struct scene scene;
    CUstream other;
    setup(&scene);
    assert_int_equal(sim_stream_create(scene.sim, CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    passes(&scene, 100, 1, 2);
    pass_with_reads(&scene, 1, other);
    uint64_t held = scene_stats(&scene).held_bytes;
    uint64_t given = vpmm_offload_yield(scene.offload, BUDGET * CHUNK);
    assert_true(given > 0);
    assert_int_equal(scene_stats(&scene).promoted_bytes, 0);
    assert_int_equal(scene_used(&scene), held - given);
    assert_int_equal(sim_ctx_synchronize(scene.sim), CUDA_SUCCESS);
    assert_int_equal(sim_stream_destroy(scene.sim, other), CUDA_SUCCESS);
    passes(&scene, 100, 1, 2);
    assert_int_equal(scene_stats(&scene).promoted_bytes, ROOM);
    scene_teardown(&scene);
}

static void test_budgets(void **state)
{
    (void)state;
    struct scene scene;
    struct vpmm_offload_need need;
    setup(&scene);
    passes(&scene, 100, 1, 2);
    vpmm_offload_need(scene.offload, &need);
    assert_int_equal(vpmm_offload_budget(scene.offload, need.floor_bytes, NULL), VPMM_OK);
    assert_true(scene_used(&scene) <= need.floor_bytes);
    passes(&scene, 100, 1, 2);
    assert_int_equal(scene_stats(&scene).promoted_bytes, 0);
    assert_int_equal(vpmm_offload_budget(scene.offload, need.floor_bytes + 2 * CHUNK, NULL),
                     VPMM_OK);
    passes(&scene, 100, 1, 2);
    assert_int_equal(scene_stats(&scene).promoted_bytes, 2 * CHUNK);
    assert_true(scene_used(&scene) <= need.floor_bytes + 2 * CHUNK);
    scene_teardown(&scene);
}

/* Graphs of captured passes are launched without a word: nothing moves while they live. */
static void test_frozen(void **state)
{
    (void)state;
    struct scene scene;
    CUgraph graph;
    setup(&scene);
    passes(&scene, 1, 1, 2);
    assert_int_equal(
        sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    pass(&scene, 1, 2);
    assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
    passes(&scene, 100, 1, 2);
    assert_int_equal(scene_stats(&scene).promotions, 0);
    assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
    passes(&scene, 100, 1, 2);
    assert_int_equal(scene_stats(&scene).promotions, 2);
    scene_teardown(&scene);
}

/* Each call of a move fails in turn: the pass that makes it is good all the same. */
static bool strike(const char *name, CUresult code, bool forever, uint64_t nth)
{
    struct scene scene;
    setup(&scene);
    passes(&scene, 64, 1, 2);
    passes(&scene, 63, 4, 5);
    sim_fault_set(scene.sim, name, nth, code, forever);
    enum vpmm_status status = try_pass(&scene, 4, 5);
    bool has_struck = sim_fault_struck(scene.sim, name);
    sim_fault_clear(scene.sim, name);
    assert_int_equal(status, VPMM_OK);
    passes(&scene, 100, 4, 5);
    assert_int_equal(scene_stats(&scene).promoted_bytes, ROOM);
    scene_teardown(&scene);
    return has_struck;
}

static void test_faults(void **state)
{
    static const char *const names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                        "cuCtxSynchronize"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t nth = 1;
        for (int forever = 0; forever < 2; forever++)
            for (nth = 1; strike(names[i], CUDA_ERROR_INVALID_VALUE, forever, nth); nth++)
                assert_true(nth < 20);
        assert_true(nth > 1);
    }
}

static enum vpmm_status (*real_map)(void *, uint64_t, uint64_t, vpmm_extent_handle);
static int maps_until_failure;

static enum vpmm_status map(void *self, uint64_t address, uint64_t bytes, vpmm_extent_handle extent)
{
    return maps_until_failure && --maps_until_failure == 0 ? VPMM_INVALID
                                                           : real_map(self, address, bytes, extent);
}

/* A window that could not be mapped on the way to another plan is mapped for the old one. */
static void test_the_old_plan_is_restored(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct scene scene;
        setup(&scene);
        real_map = scene.driver.map;
        scene.driver.map = map;
        passes(&scene, 100, 0, 1);
        assert_int_equal(scene_stats(&scene).promoted_bytes, ROOM);
        maps_until_failure = n;
        assert_int_equal(vpmm_offload_budget(scene.offload, (BUDGET - 1) * CHUNK, NULL),
                         VPMM_INVALID);
        assert_int_equal(maps_until_failure, 0);
        assert_int_equal(scene_stats(&scene).budget_bytes, BUDGET * CHUNK);
        assert_true(scene_used(&scene) > 0);
        struct vpmm_offload_stats before = scene_stats(&scene);
        passes(&scene, 4, 0, 1);
        assert_int_equal(scene_stats(&scene).vmm_calls, before.vmm_calls);
        scene_teardown(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promoted),
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_pressure),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_the_old_plan_is_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
