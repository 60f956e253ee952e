/* SPDX-License-Identifier: MIT */
/* ring API ROUNDS LEAST_MIB MOST_MIB [blocking] [without-back]: each round takes a block on stream
 * A, uses it there for 60 us and, behind an event, on stream B for 20 us, and frees it on B. Then A
 * waits for an event of B, unless it is to go on without. The host runs ahead of the device. The
 * sizes are all whole MiB between the two, in turn. Blocking streams have no
 * CU_STREAM_NON_BLOCKING.
 *
 * A pair is the host's time of the allocation and the free of one round. */
#define _GNU_SOURCE
#include "driver.h"

#include "../kernel.h"

#define TAKEN_NS 60000
#define HANDED_NS 20000
/* Prime to all numbers of sizes that are asked for: neighbours differ much, and each size comes. */
#define STRIDE 37

struct ring {
    size_t least_bytes, n_sizes;
    bool has_back;
    CUstream a, b;
    CUevent used, freed;
    struct times pairs, mallocs, frees;
};

static void play(struct ring *ring, size_t number)
{
    CUdeviceptr block;
    size_t bytes = ring->least_bytes + number * STRIDE % ring->n_sizes * MIB;
    double start_ns = now_ns();
    MUST(cuMemAllocAsync(&block, bytes, ring->a));
    double malloc_ns = now_ns() - start_ns;
    kernel_queue(ring->a, block, TAKEN_NS);
    MUST(cuEventRecord(ring->used, ring->a));
    MUST(cuStreamWaitEvent(ring->b, ring->used, 0));
    kernel_queue(ring->b, block, HANDED_NS);
    start_ns = now_ns();
    MUST(cuMemFreeAsync(block, ring->b));
    double free_ns = now_ns() - start_ns;
    MUST(cuEventRecord(ring->freed, ring->b));
    if (ring->has_back)
        MUST(cuStreamWaitEvent(ring->a, ring->freed, 0));
    times_add(&ring->mallocs, malloc_ns);
    times_add(&ring->frees, free_ns);
    times_add(&ring->pairs, malloc_ns + free_ns);
}

/* One round before is waited for: what a process pays once is no part of the times. */
static void play_all(struct ring *ring, size_t n_rounds)
{
    play(ring, 0);
    MUST(cuCtxSynchronize());
    ring->pairs.n = ring->mallocs.n = ring->frees.n = 0;
    double start_ns = now_ns();
    for (size_t i = 0; i < n_rounds; i++)
        play(ring, i);
    double host_ns = now_ns() - start_ns;
    MUST(cuCtxSynchronize());
    figure("host_round", host_ns / (double)n_rounds, "ns");
    figure("round", (now_ns() - start_ns) / (double)n_rounds, "ns");
}

/* What the default pool says of itself: under a library that serves in its place, what that says.
 */
static void tell_reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &bytes));
    figure("reserved_high", (double)bytes, "bytes");
}

static struct ring ring_make(int argc, char **argv)
{
    size_t n_rounds = (size_t)number_at(argc, argv, 2, 1);
    int least_mib = number_at(argc, argv, 3, 1), most_mib = number_at(argc, argv, 4, least_mib);
    unsigned flags = CU_STREAM_NON_BLOCKING;
    struct ring ring = {.least_bytes = (size_t)least_mib * MIB,
                        .n_sizes = (size_t)(most_mib - least_mib) + 1,
                        .has_back = true,
                        .pairs = times_make(n_rounds),
                        .mallocs = times_make(n_rounds),
                        .frees = times_make(n_rounds)};
    for (int i = 5; i < argc; i++) {
        if (strcmp(argv[i], "blocking") == 0)
            flags = CU_STREAM_DEFAULT;
        else if (strcmp(argv[i], "without-back") == 0)
            ring.has_back = false;
        else
            give_up("after the sizes come blocking and without-back, or nothing");
    }
    ring.a = stream_make(flags);
    ring.b = stream_make(flags);
    ring.used = event_make();
    ring.freed = event_make();
    return ring;
}

static void ring_free(struct ring *ring)
{
    MUST(cuEventDestroy(ring->used));
    MUST(cuEventDestroy(ring->freed));
    MUST(cuStreamDestroy(ring->a));
    MUST(cuStreamDestroy(ring->b));
    times_free(&ring->pairs);
    times_free(&ring->mallocs);
    times_free(&ring->frees);
}

int main(int argc, char **argv)
{
    CUmemoryPool pool = begin(argc, argv);
    struct ring ring = ring_make(argc, argv);
    kernel_load();
    play_all(&ring, ring.pairs.room);
    figure("pair", times_mean(&ring.pairs), "ns");
    figure_quantiles("pair", &ring.pairs);
    figure_quantiles("malloc", &ring.mallocs);
    figure_quantiles("free", &ring.frees);
    /* The program's own count: it has freed each block before it takes the next one. */
    figure("live_peak", (double)(ring.least_bytes + (ring.n_sizes - 1) * MIB), "bytes");
    tell_reserved(pool);
    wait_for_word("held");
    ring_free(&ring);
    return 0;
}
