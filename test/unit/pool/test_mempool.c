/* SPDX-License-Identifier: MIT */
/* What live blocks count to CUDA's memory pools: each to its own, in bytes as bare CUDA rounds
 * them, however a block comes to live and ends. The audit of the teardown adds them up, too. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)
#define OWN (VPMM_MEMPOOL_FIRST + 3)

static struct world w;
static struct vpmm_pool_share share;

static int setup(void **state)
{
    (void)state;
    world_init(&w, PAGE, 1, 64);
    share = (struct vpmm_pool_share){0};
    vpmm_pool_add_share(w.pool, &share);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static struct vpmm_owner owner_of(uint64_t bytes, uint32_t mempool)
{
    return (struct vpmm_owner){.bytes = bytes,
                               .context_id = 3,
                               .stream_id = 1,
                               .id = 77,
                               .is_async = true,
                               .mempool = mempool};
}

static uint32_t cache(uint64_t page)
{
    struct vpmm_live live;
    assert_true(vpmm_pool_look_live(w.pool, world_address(&w, page), &live));
    assert_true(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 1, &share));
    return live.number;
}

static void expect(uint64_t standard, uint64_t own, uint64_t other_pages)
{
    assert_int_equal(vpmm_pool_mempool_bytes(w.pool, VPMM_MEMPOOL_DEFAULT), standard);
    assert_int_equal(vpmm_pool_mempool_bytes(w.pool, OWN), own);
    assert_int_equal(vpmm_pool_other_pages(w.pool), other_pages);
}

/* A block of the world is cudaMalloc's: it counts to none. */
static void a_block_counts_to_the_pool_of_its_owner(void **state)
{
    (void)state;
    const struct vpmm_owner standard = owner_of(2 * PAGE - 700, VPMM_MEMPOOL_DEFAULT);
    const struct vpmm_owner own = owner_of(2 * PAGE - 700, OWN);
    uint64_t page = world_malloc(&w, 2, 0);
    expect(0, 0, 2);
    uint32_t number = cache(page);
    expect(0, 0, 0);
    (void)vpmm_pool_uncache(w.pool, number, &standard, &share);
    expect(2 * PAGE - 700, 0, 0);
    number = cache(page);
    (void)vpmm_pool_uncache(w.pool, number, &own, &share);
    expect(0, 2 * PAGE - 700, 2);
    struct vpmm_region_view view;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, page), &view), VPMM_OK);
    assert_int_equal(view.owner.mempool, OWN);
    expect(0, 0, 0);
    vpmm_pool_free(w.pool, world_address(&w, page), VPMM_FENCE_NONE, 0);
    expect(0, 0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_block_counts_to_the_pool_of_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
