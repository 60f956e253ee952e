/* SPDX-License-Identifier: MIT */
/* Bytes: a pattern for each block, written by kernels, seen by kernels and by the host, through
 * every remap, every free of a neighbour and every way in which pages change hands. */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#define MOST 48

struct program {
    struct fixture f;
    CUstream streams[4];
    struct block blocks[MOST];
    int stream_of[MOST]; /* -1: cudaMalloc */
    int n;
    uint64_t random, next_pattern;
};

static uint64_t draw(struct program *program, uint64_t n)
{
    program->random = program->random * 6364136223846793005u + 1442695040888963407u;
    return (program->random >> 33) % n;
}

static void check_all(struct program *program)
{
    for (int i = 0; i < program->n; i++)
        block_check(&program->f, program->streams[program->stream_of[i] & 3], &program->blocks[i]);
}

/* cudaMalloc memory is used on stream 3 (-1 & 3), and freed by cudaFree with work queued. */
static void one_free(struct program *program)
{
    int i = (int)draw(program, (uint64_t)program->n);
    int stream = program->stream_of[i];
    block_check(&program->f, program->streams[stream & 3], &program->blocks[i]);
    fixture_free(&program->f, program->blocks[i].address,
                 stream < 0 ? NULL : program->streams[stream]);
    program->n--;
    program->blocks[i] = program->blocks[program->n];
    program->stream_of[i] = program->stream_of[program->n];
}

static void one_malloc(struct program *program)
{
    int stream = (int)draw(program, 5) - 1;
    struct block block = {0, 1 + draw(program, draw(program, 3) ? 6 : 30), program->next_pattern++};
    if (fixture_try_malloc(&program->f, block.pages, stream < 0 ? NULL : program->streams[stream],
                           &block.address))
        return;
    block_write(&program->f, program->streams[stream & 3], &block, NULL);
    program->blocks[program->n] = block;
    program->stream_of[program->n++] = stream;
}

static void run_program(uint64_t seed, uint64_t extent_pages_max)
{
    static struct program program;
    struct fixture_params params;
    rules_params(&params);
    memset(&program, 0, sizeof program);
    params.sim.seed = seed;
    params.sim.query_progress = 2;
    params.heap.slack_bytes = 16 * MIB;
    params.heap.extent_pages_max = extent_pages_max;
    print_message("seed %llu, extents of at most %llu pages\n", (unsigned long long)seed,
                  (unsigned long long)extent_pages_max);
    fixture_setup(&program.f, &params);
    program.random = seed;
    for (int i = 0; i < 4; i++)
        program.streams[i] = fixture_stream(&program.f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 600; i++) {
        if (program.n > 0 && (program.n == MOST || draw(&program, 5) < 2))
            one_free(&program);
        else
            one_malloc(&program);
        if (i % 16 == 0)
            check_all(&program);
        for (uint64_t steps = draw(&program, 4); steps > 0; steps--)
            (void)sim_step(program.f.sim);
        if (i % 50 == 0)
            vpmm_heap_reap(program.f.heap);
    }
    check_all(&program);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(program.f.sim));
    for (int i = 0; i < program.n; i++)
        assert_true(block_is_intact(&program.f, &program.blocks[i]));
    assert_in_range(fixture_totals(&program.f).moved_pages, 20, UINT64_MAX);
    while (program.n > 0)
        one_free(&program);
    SAME(0, blocks_wrong());
    fixture_teardown(&program.f);
}

static void data_every_block_keeps_its_pattern(void **state)
{
    (void)state;
    const char *given = getenv("VPMM_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (given ? 1 : 6); seed++)
        for (uint64_t extent_pages_max = 0; extent_pages_max < 5; extent_pages_max += 2)
            run_program(seed, extent_pages_max == 2 ? 1 : extent_pages_max);
}

/* A kernel spins on memory that is freed, harvested and remapped under it: it keeps its old
 * address, and what it writes there at last comes before everything of the next owner. */
static void data_a_spinning_kernel_keeps_its_old_address(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 6, a), 6, 1};
    struct block wall = {fixture_malloc(&f, 1, NULL), 1, 2};
    block_write(&f, a, &p, &gate);
    block_check(&f, a, &p);
    fixture_free(&f, p.address, a);
    struct block q = {fixture_malloc(&f, 9, a), 9, 3};
    SAME(6, fixture_totals(&f).moved_pages);
    block_write(&f, a, &q, NULL);
    block_check(&f, a, &q);
    block_write(&f, a, &wall, NULL);
    vpmm_heap_reap(f.heap);
    (void)vpmm_heap_trim(f.heap, UINT64_MAX);
    SAME(6, fixture_totals(&f).zombie_pages);
    gate = true;
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    SAME(2, blocks_checked());
    SAME(0, blocks_wrong());
    assert_true(block_is_intact(&f, &q));
    assert_true(block_is_intact(&f, &wall));
    fixture_free(&f, q.address, a);
    fixture_free(&f, wall.address, NULL);
    fixture_teardown(&f);
}

static bool all_bytes_are(struct fixture *f, uint64_t address, uint64_t pages, unsigned char value)
{
    unsigned char bytes[64];
    for (uint64_t at = 0; at < pages * f->page_bytes; at += f->page_bytes / 16) {
        assert_true(sim_peek(f->sim, 0, address + at, bytes, sizeof bytes));
        for (size_t i = 0; i < sizeof bytes; i++)
            if (bytes[i] != value)
                return false;
    }
    return true;
}

/* cudaFree with work queued on a non-blocking stream; the next cudaMalloc is the host's at once.
 * With slack it has other pages; without, it has waited. */
static void data_cudamalloc_after_cudafree_with_queued_work(void **state)
{
    (void)state;
    for (int has_slack = 0; has_slack < 2; has_slack++) {
        struct fixture f;
        struct fixture_params params;
        rules_params(&params);
        params.heap.slack_bytes *= (uint64_t)has_slack;
        fixture_setup(&f, &params);
        CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        struct block p = {fixture_malloc(&f, 8, NULL), 8, 1};
        for (int i = 0; i < 3; i++)
            block_write(&f, a, &p, NULL);
        fixture_free(&f, p.address, NULL);
        SAME(CUDA_ERROR_NOT_READY, sim_stream_query(f.sim, a));
        uint64_t q = fixture_malloc(&f, 8, NULL);
        SAME(!has_slack, pages_overlap(&f, p.address, 8, q, 8));
        SAME(CUDA_SUCCESS, sim_memset(f.sim, q, 0x5a, 1, 8 * f.page_bytes, CU_STREAM_LEGACY));
        SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, CU_STREAM_LEGACY));
        SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
        assert_true(all_bytes_are(&f, q, 8, 0x5a));
        fixture_free(&f, q, NULL);
        fixture_teardown(&f);
    }
}

/* The old address is mapped until its fence is complete, then unmapped, then somebody else's. */
static void data_a_zombies_address_is_used_again(void **state)
{
    (void)state;
    struct fixture f;
    char byte;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    struct block wall = {fixture_malloc(&f, 1, a), 1, 2};
    block_write(&f, a, &p, &gate);
    fixture_free(&f, p.address, a);
    struct block q = {fixture_malloc(&f, 5, a), 5, 3};
    block_write(&f, a, &q, NULL);
    for (int i = 0; i < 3; i++)
        vpmm_heap_reap(f.heap);
    uint64_t unmaps = sim_calls(f.sim, "cuMemUnmap");
    SAME(0, unmaps);
    assert_true(sim_peek(f.sim, 0, p.address, &byte, 1));
    uint64_t r = fixture_malloc(&f, 4, b);
    assert_false(pages_overlap(&f, r, 4, p.address, 4));
    gate = true;
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    vpmm_heap_reap(f.heap);
    assert_false(sim_peek(f.sim, 0, p.address, &byte, 1));
    struct block s = {fixture_malloc(&f, 4, b), 4, 4};
    SAME(p.address, s.address);
    block_write(&f, b, &s, NULL);
    block_write(&f, a, &wall, NULL);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    assert_true(block_is_intact(&f, &q));
    assert_true(block_is_intact(&f, &s));
    assert_true(block_is_intact(&f, &wall));
    fixture_free(&f, q.address, a);
    fixture_free(&f, r, b);
    fixture_free(&f, s.address, b);
    fixture_free(&f, wall.address, a);
    fixture_teardown(&f);
}

/* Copies and sets run over pages, extents, and the seam between what was moved and what was made.
 */
static void data_copies_cross_pages_and_extents(void **state)
{
    (void)state;
    struct fixture f;
    static unsigned char host[5 * 2 << 20], back[sizeof host];
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 3, a);
    uint64_t wall = fixture_malloc(&f, 1, a);
    fixture_free(&f, p, a);
    uint64_t from = fixture_malloc(&f, 6, a);
    uint64_t to = fixture_malloc(&f, 6, a);
    SAME(3, fixture_totals(&f).moved_pages);
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (unsigned char)(i * 7 + i / 4093);
    SAME(CUDA_SUCCESS,
         sim_memcpy_async(f.sim, from + 1001, (CUdeviceptr)(uintptr_t)host, sizeof host, a));
    SAME(CUDA_SUCCESS, sim_memcpy_async(f.sim, to + 77, from + 1001, sizeof host, a));
    SAME(CUDA_SUCCESS,
         sim_memcpy_async(f.sim, (CUdeviceptr)(uintptr_t)back, to + 77, sizeof host, a));
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    assert_memory_equal(host, back, sizeof host);
    SAME(CUDA_SUCCESS, sim_memset(f.sim, to, 0x11, 1, 6 * f.page_bytes, a));
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    assert_true(all_bytes_are(&f, to, 6, 0x11));
    fixture_free(&f, from, a);
    fixture_free(&f, to, a);
    fixture_free(&f, wall, a);
    fixture_teardown(&f);
}

/* The driver refuses ranges over two reservations: neighbouring roots stay apart, and a request
 * that would fit both together gets a root of its own. */
static void data_adjacent_roots_are_not_merged(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    uint64_t start[3], pages[3];
    rules_params(&params);
    params.sim.device_bytes = 16 * MIB;
    params.heap.root_bytes = 8 * MIB;
    params.heap.slack_bytes = 0;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block low = {fixture_malloc(&f, 4, a), 4, 1};
    struct block high = {fixture_malloc(&f, 3, a), 3, 2};
    block_write(&f, a, &low, NULL);
    block_write(&f, a, &high, NULL);
    SAME(2, fixture_totals(&f).roots);
    assert_true(vpmm_pool_root(vpmm_heap_pool(f.heap), 0, &start[0], &pages[0]));
    assert_true(vpmm_pool_root(vpmm_heap_pool(f.heap), 1, &start[1], &pages[1]));
    SAME(start[1], start[0] + pages[0] * f.page_bytes);
    fixture_free(&f, low.address, a);
    fixture_free(&f, high.address, a);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    vpmm_heap_reap(f.heap);
    assert_string_equal(fixture_layout(&f), "[-4][-3]");
    struct block both = {fixture_malloc(&f, 7, a), 7, 3};
    assert_true(vpmm_pool_root(vpmm_heap_pool(f.heap), 2, &start[2], &pages[2]));
    assert_in_range(both.address, start[2], start[2] + (pages[2] - 7) * f.page_bytes);
    SAME(7, fixture_totals(&f).held_pages);
    block_write(&f, a, &both, NULL);
    block_check(&f, a, &both);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    SAME(0, blocks_wrong());
    fixture_free(&f, both.address, a);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_every_block_keeps_its_pattern),
        cmocka_unit_test(data_a_spinning_kernel_keeps_its_old_address),
        cmocka_unit_test(data_cudamalloc_after_cudafree_with_queued_work),
        cmocka_unit_test(data_a_zombies_address_is_used_again),
        cmocka_unit_test(data_copies_cross_pages_and_extents),
        cmocka_unit_test(data_adjacent_roots_are_not_merged),
    };
    return cmocka_run_group_tests_name("rules/data", tests, NULL, NULL);
}
