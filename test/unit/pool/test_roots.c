/* SPDX-License-Identifier: MIT */
/* Roots: which are taken, and that an address is found among many of them. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)
#define ROOTS 300
#define SMALL_ROOT 12
#define BLOCKS 5

static void impossible_roots_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, PAGE, 1, 4);
    const uint64_t most = (UINT64_MAX - WORLD_BASE) / PAGE;
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE * 2, 0, false), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, 0, VPMM_ROOT_PAGES_MAX + 1, false), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE * 2, UINT64_MAX, false), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE, most + 1, false), VPMM_INVALID);
    assert_string_equal(world_layout(&w), "");
    assert_int_equal(world_malloc(&w, 4, 1), 0);
    world_finish(&w);
}

/* Of three in a row, the middle one is no root. Adopted in an order that goes up and down. */
static void an_address_is_found_among_many_roots(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, PAGE, 1, 0);
    for (uint64_t i = 0; i < ROOTS; i++) {
        uint64_t place = i * 7 % ROOTS;
        world_add_root(&w, place * 6, 2);
        world_add_root(&w, place * 6 + 4, 2);
    }
    for (uint64_t page = 0; page < ROOTS * 6; page++) {
        struct vpmm_region_view region;
        uint64_t address = world_address(&w, page) + PAGE - 1;
        bool is_inside = page % 6 / 2 != 1;
        assert_int_equal(vpmm_pool_find(w.pool, address, &region),
                         is_inside ? VPMM_OK : VPMM_NOT_FOUND);
        if (is_inside)
            assert_int_equal(region.address, world_address(&w, page & ~UINT64_C(1)));
    }
    world_check(&w);
    world_finish(&w);
}

/* Two roots whose pages have the same numbers, and requests that move extents to and fro between
 * them: what comes home from one leaves the other as it is. The world is checked at each step. */
static void what_moves_between_roots_is_told_apart(void **state)
{
    (void)state;
    struct world w;
    uint64_t live[BLOCKS] = {0};
    uint64_t random = 88172645463325252u;
    world_init(&w, PAGE, 1, 0);
    world_add_root(&w, 1, SMALL_ROOT);
    world_add_root(&w, 1 + 2 * SMALL_ROOT, SMALL_ROOT);
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint64_t *block = &live[random % BLOCKS];
        if (*block) {
            world_free(&w, *block, VPMM_FENCE_NONE);
            *block = 0;
        } else if (world_try(&w, 1 + (random >> 32) % 4, 1, UINT64_MAX, NULL, block)) {
            *block = 0;
        }
    }
    assert_true(world_totals(&w).moved_pages > 0);
    world_finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_roots_are_refused),
        cmocka_unit_test(an_address_is_found_among_many_roots),
        cmocka_unit_test(what_moves_between_roots_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
