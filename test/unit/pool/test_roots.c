/* SPDX-License-Identifier: MIT */
/* Roots: which are taken, and that an address is found among many of them. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)
#define ROOTS 300

static void impossible_roots_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, PAGE, 1, 4);
    const uint64_t most = (UINT64_MAX - WORLD_BASE) / PAGE;
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE * 2, 0), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, 0, VPMM_ROOT_PAGES_MAX + 1), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE * 2, UINT64_MAX), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(w.pool, WORLD_BASE, most + 1), VPMM_INVALID);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_roots_are_refused),
        cmocka_unit_test(an_address_is_found_among_many_roots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
