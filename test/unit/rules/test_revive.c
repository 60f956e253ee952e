/* SPDX-License-Identifier: MIT */
/* Old addresses that come to live again, with bytes and with every access watched. */
#include "blocks.h"

/* Of two freed blocks of 5 and 7 pages, 8 went into a third one, whose low 5 are in use again: what
 * is left free are the 7 pages of the second block, 3 of them elsewhere. */
struct scene {
    struct fixture f;
    CUstream a, b;
    struct block low, second, third, user;
};

static void settle(struct fixture *f)
{
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f->sim));
    (void)vpmm_order_poll(f->order);
    vpmm_heap_reap(f->heap);
}

static struct block take(struct scene *scene, uint64_t pages, CUstream stream, uint64_t pattern)
{
    struct block block = {fixture_malloc(&scene->f, pages, stream), pages, pattern};
    block_write(&scene->f, stream, &block, NULL);
    return block;
}

/* The work on the first blocks goes on until *gate. */
static void build(struct scene *scene, const struct fixture_params *params,
                  const volatile bool *gate)
{
    struct fixture *f = &scene->f;
    rules_forget();
    fixture_setup(f, params);
    scene->a = fixture_stream(f, CU_STREAM_NON_BLOCKING);
    scene->b = fixture_stream(f, CU_STREAM_NON_BLOCKING);
    scene->low = (struct block){fixture_malloc(f, 5, scene->a), 5, 1};
    block_write(f, scene->a, &scene->low, gate);
    (void)fixture_malloc(f, 1, scene->a);
    scene->second = take(scene, 7, scene->a, 2);
    (void)fixture_malloc(f, 1, scene->a);
    fixture_free(f, scene->low.address, scene->a);
    fixture_free(f, scene->second.address, scene->a);
    scene->third = take(scene, 8, scene->a, 3);
    SAME(8, fixture_totals(f).moved_pages);
    fixture_free(f, scene->third.address, scene->a);
    scene->user = take(scene, 5, scene->a, 4);
    SAME(scene->third.address, scene->user.address);
}

static uint64_t revives(struct scene *scene)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(scene->f.heap, &counts);
    return counts.revives;
}

static void rule_3_6_an_old_address_lives_after_all_its_users(void **state)
{
    (void)state;
    struct scene scene;
    struct fixture_params params;
    static volatile bool gate;
    rules_params(&params);
    gate = false;
    build(&scene, &params, &gate);
    struct vpmm_pool_totals before = fixture_totals(&scene.f);
    struct block again = take(&scene, 7, scene.a, 5);
    SAME(scene.second.address, again.address);
    SAME(1, revives(&scene));
    SAME(before.held_pages, fixture_totals(&scene.f).held_pages);
    SAME(before.mappings, fixture_totals(&scene.f).mappings);
    block_check(&scene.f, scene.a, &again);
    block_check(&scene.f, scene.a, &scene.user);
    gate = true;
    settle(&scene.f);
    SAME(2, blocks_checked());
    SAME(0, blocks_wrong());
    assert_true(block_is_intact(&scene.f, &again));
    assert_true(block_is_intact(&scene.f, &scene.user));
    fixture_teardown(&scene.f);
}

static void rule_3_6_an_old_address_waits_for_the_work_of_another_stream(void **state)
{
    (void)state;
    struct scene scene;
    struct fixture_params params;
    static volatile bool gate;
    rules_params(&params);
    gate = false;
    build(&scene, &params, &gate);
    struct block other = take(&scene, 7, scene.b, 5);
    assert_true(other.address != scene.second.address);
    SAME(0, revives(&scene));
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(scene.f.sim));
    struct block again = take(&scene, 7, scene.b, 6);
    SAME(scene.second.address, again.address);
    SAME(1, revives(&scene));
    settle(&scene.f);
    assert_true(block_is_intact(&scene.f, &other));
    assert_true(block_is_intact(&scene.f, &again));
    assert_true(block_is_intact(&scene.f, &scene.user));
    fixture_teardown(&scene.f);
}

/* Its zombie was mapped before the second device had access to anything. */
static void weakness_w14_another_device_reaches_an_old_address(void **state)
{
    (void)state;
    struct scene scene;
    struct fixture_params params;
    CUcontext second;
    rules_params(&params);
    params.sim.n_devices = 2;
    build(&scene, &params, NULL);
    SAME(VPMM_OK, vpmm_heap_add_peer(scene.f.heap, 1));
    struct block again = take(&scene, 7, scene.a, 5);
    SAME(scene.second.address, again.address);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(scene.f.sim));
    SAME(CUDA_SUCCESS, sim_ctx_create(scene.f.sim, 0, 1, &second));
    CUstream there = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    block_check(&scene.f, there, &again);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize_of(scene.f.sim, second));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(scene.f.sim, scene.f.handle));
    SAME(1, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_teardown(&scene.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_3_6_an_old_address_lives_after_all_its_users),
        cmocka_unit_test(rule_3_6_an_old_address_waits_for_the_work_of_another_stream),
        cmocka_unit_test(weakness_w14_another_device_reaches_an_old_address),
    };
    return cmocka_run_group_tests_name("rules/revive", tests, NULL, NULL);
}
