/* SPDX-License-Identifier: MIT */
/* Old addresses that nobody has asked for again: in which order they are given up. */
#include "scene.h"

/* The older of two zombies loses its low end to a request, which leaves a third, the youngest. */
static void what_is_left_of_a_zombie_is_as_old_as_the_whole(void **state)
{
    (void)state;
    uint64_t young = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    uint64_t old = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, old, VPMM_FENCE_NONE);
    uint64_t heir = world_malloc(&w, 5, 1);
    world_free(&w, young, VPMM_FENCE_NONE);
    world_malloc(&w, 4, 1);
    world_free(&w, heir, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z3][1][z4][1][-5][4]");
    struct vpmm_want want = world_want(&w, 2, 1);
    uint64_t address;
    assert_int_equal(vpmm_pool_revive(w.pool, &want, &address), VPMM_OK);
    world_check(&w);
    assert_int_equal(address, world_address(&w, old));
    assert_string_equal(world_layout(&w), "[z3][1][2][z2][1][z2][-3][4]");
    const uint64_t pages[3] = {old + 2, young, heir};
    struct vpmm_removal removals[3];
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, removals, 3), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(removals[i].address, world_address(&w, pages[i]));
        world_unmap(&w, removals[i].address, removals[i].pages);
        vpmm_pool_removal_done(w.pool, &removals[i], VPMM_REMOVED);
    }
    world_check(&w);
    assert_string_equal(world_layout(&w), "[*3][1][2][*2][1][*2][-3][4]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_left_of_a_zombie_is_as_old_as_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
