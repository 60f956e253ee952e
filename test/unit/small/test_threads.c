/* SPDX-License-Identifier: MIT */
/* Threads that hand blocks to each other: what one allocates, others free. A shadow of the device
 * tells who has each grain, so that two owners of one are noticed at once. */
#include "scene.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4
#define ROUNDS 3000
#define SHELVES 64
#define SHADOW_GRAINS (GIB / VPMM_GRAIN_BYTES)

static struct scene scene;
static vpmm_atomic32 *shadow;
static uint64_t root;
static vpmm_atomic32 n_overlaps, n_refused;

struct parcel {
    uint64_t address, bytes;
};
/* Where threads leave blocks for whoever comes next. */
static _Atomic(struct parcel *) shelf[SHELVES];

struct worker {
    pthread_t thread;
    CUstream stream;
    uint64_t random;
    bool is_waiting; /* half of its blocks are of cudaMalloc */
};

/* Of several threads one tells why. */
static void must(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "small_threads: not so: %s\n", what);
    abort();
}
#define MUST(condition) must(condition, #condition)

static uint64_t draw(struct worker *worker, uint64_t n)
{
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return (worker->random >> 33) % n;
}

static void mark(const struct parcel *parcel, uint32_t from, uint32_t to)
{
    uint64_t first = (parcel->address - root) / VPMM_GRAIN_BYTES;
    uint64_t n = (parcel->bytes + VPMM_GRAIN_BYTES - 1) / VPMM_GRAIN_BYTES;
    for (uint64_t i = first; i < first + n; i++)
        if (vpmm_atomic_exchange(&shadow[i], to) != from)
            vpmm_atomic_add(&n_overlaps, 1);
}

static struct vpmm_stream resolve(CUstream handle)
{
    struct vpmm_stream stream;
    MUST(!vpmm_order_stream(scene.f.order, (vpmm_stream_handle)handle, &stream));
    return stream;
}

static void take(struct worker *worker, struct parcel *parcel)
{
    bool is_async = !worker->is_waiting || draw(worker, 2);
    struct vpmm_stream stream = resolve(worker->stream);
    parcel->bytes = 1 + draw(worker, (uint64_t)1 << (9 + draw(worker, 8)));
    const struct vpmm_request request = {
        .bytes = parcel->bytes, .context = scene.f.context, .stream = is_async ? &stream : NULL};
    if ((!is_async || !vpmm_small_malloc_warm(scene.small, &request, &parcel->address)) &&
        vpmm_small_malloc(scene.small, &request, &parcel->address)) {
        vpmm_atomic_add(&n_refused, 1);
        parcel->address = 0;
        return;
    }
    mark(parcel, 0, 1);
}

static void give(struct worker *worker, const struct parcel *parcel)
{
    enum vpmm_status waited = VPMM_OK;
    struct vpmm_stream stream = resolve(worker->stream);
    if (!parcel->address)
        return;
    mark(parcel, 1, 0);
    bool is_async = draw(worker, 4) != 0;
    const struct vpmm_stream *known = is_async ? &stream : NULL;
    MUST(!vpmm_small_free_warm(scene.small, parcel->address, known) ||
         !vpmm_small_free(scene.small, parcel->address, known, &waited));
    MUST(!waited);
    /* INVALID: the free has emptied the slab, and nothing there is small any more. */
    enum vpmm_status again = vpmm_small_free(scene.small, parcel->address + 1, &stream, &waited);
    MUST(again == VPMM_NOT_FOUND || again == VPMM_INVALID);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    MUST(!sim_ctx_set_current(scene.f.sim, scene.f.handle));
    for (int i = 0; i < ROUNDS; i++) {
        struct parcel *parcel = malloc(sizeof *parcel);
        MUST(parcel);
        take(worker, parcel);
        parcel = atomic_exchange(&shelf[draw(worker, SHELVES)], parcel);
        if (parcel)
            give(worker, parcel);
        free(parcel);
        if (draw(worker, 500) == 0)
            vpmm_heap_reap(scene.f.heap);
        if (draw(worker, 100) == 0)
            MUST(!vpmm_small_audit(scene.small));
    }
    return NULL;
}

static void run(bool is_waiting)
{
    struct fixture_params params;
    struct worker workers[THREADS];
    uint64_t pages;
    scene_params(&params);
    params.sim.eager = true;
    params.sim.has_bytes = false;
    params.sim.check_races = false;
    scene = (struct scene){.params = {.free_waits = is_waiting}};
    scene_setup_with(&scene, &params);
    shadow = calloc(SHADOW_GRAINS, sizeof *shadow);
    assert_non_null(shadow);
    scene_free(&scene, scene_malloc(&scene, 1, NULL), NULL);
    assert_true(vpmm_pool_root(vpmm_heap_pool(scene.f.heap), 1, &root, &pages));
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.random = i + 1, .is_waiting = is_waiting};
        workers[i].stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    }
    for (unsigned i = 0; i < THREADS; i++)
        SAME(0, pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    for (unsigned i = 0; i < THREADS; i++)
        SAME(0, pthread_join(workers[i].thread, NULL));
    for (unsigned i = 0; i < SHELVES; i++) {
        struct parcel *parcel = atomic_exchange(&shelf[i], NULL);
        if (parcel)
            give(&workers[0], parcel);
        free(parcel);
    }
    SAME(0, vpmm_atomic_load(&n_overlaps));
    SAME(0, vpmm_atomic_load(&n_refused));
    free(shadow);
    scene_teardown(&scene);
}

static void streams_hand_blocks_to_each_other(void **state)
{
    (void)state;
    run(false);
}

static void so_do_threads_that_call_cuda_malloc(void **state)
{
    (void)state;
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_hand_blocks_to_each_other),
        cmocka_unit_test(so_do_threads_that_call_cuda_malloc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
