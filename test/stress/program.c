/* SPDX-License-Identifier: MIT */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

/* At the end, what is pending is counted so often at most. */
#define SYNCHRONISATIONS 100

struct program program = {.shelf = {.lock = PTHREAD_MUTEX_INITIALIZER}};

void give_up(const struct actor *actor, const char *what, long long code, const char *file,
             int line)
{
    fprintf(stderr, "%s:%d: %s: code %lld after %llu calls of this thread (seed %u)\n", file, line,
            what, code, actor->n_calls, program.seed);
    abort();
}

/* Peers by context for cuMemAlloc's memory, by pool for cuMemAllocAsync's. */
static void connect(struct actor *actor, int from, int to)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    access.location.id = to;
    MUST(actor, cuCtxSetCurrent(program.places[to].context));
    MUST(actor, cuCtxEnablePeerAccess(program.places[from].context, 0));
    MUST(actor, cuMemPoolSetAccess(program.places[from].default_pool, &access, 1));
    MUST(actor, cuMemPoolSetAccess(program.places[from].own_pool, &access, 1));
    MUST(actor, cuMemPoolSetAccess(program.places[from].shared_pool, &access, 1));
}

static void make_place(struct actor *actor, int device)
{
    struct place *place = &program.places[device];
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    props.location.id = device;
    MUST(actor, cuDevicePrimaryCtxRetain(&place->context, device));
    MUST(actor, cuCtxSetCurrent(place->context));
    MUST(actor, cuDeviceGetDefaultMemPool(&place->default_pool, device));
    MUST(actor, cuMemPoolCreate(&place->own_pool, &props));
    MUST(actor, cuMemPoolSetAttribute(place->own_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                      &(cuuint64_t){0}));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST(actor, cuMemPoolCreate(&place->shared_pool, &props));
    for (int i = 0; i < SHARED_STREAMS; i++)
        MUST(actor, cuStreamCreate(&place->shared[i], i ? CU_STREAM_NON_BLOCKING : 0));
}

void program_start(struct actor *actor)
{
    MUST(actor, cuInit(0));
    for (int i = 0; i < SIM_MISUSE_COUNT; i++)
        if (i != SIM_CAPTURE_BROKEN)
            vpmm_sim_action_set((enum sim_misuse)i, SIM_STOP);
    for (int i = 0; i < DEVICES; i++)
        make_place(actor, i);
    for (int i = 0; i < DEVICES; i++)
        connect(actor, i, (i + 1) % DEVICES);
    actor_begin(actor, program.seed);
}

static void destroy_streams(struct actor *actor)
{
    for (int i = 0; i < DEVICES; i++)
        for (int j = 0; j < SHARED_STREAMS; j++)
            MUST(actor, cuStreamDestroy(program.places[i].shared[j]));
}

static void synchronise(struct actor *actor)
{
    for (int i = 0; i < DEVICES; i++) {
        actor_go_to(actor, i);
        MUST(actor, cuCtxSynchronize());
    }
}

void program_finish(struct actor *actor)
{
    struct block block;
    struct sim_counts counts = {.pending = 1};
    while (shelf_take(&program.shelf, 0, &block)) {
        actor_go_to(actor, block.device);
        block_free(actor, &block, NULL);
    }
    /* Below a threshold nothing is trimmed, and no event recorded, behind a synchronisation. */
    for (int i = 0; i < DEVICES; i++)
        MUST(actor,
             cuMemPoolSetAttribute(program.places[i].own_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                   &(cuuint64_t){UINT64_MAX}));
    for (int i = 0; i < DEVICES; i++) {
        actor_go_to(actor, i);
        MUST(actor, cuCtxSynchronize());
        MUST(actor, cuMemPoolDestroy(program.places[i].own_pool));
        MUST(actor, cuMemPoolDestroy(program.places[i].shared_pool));
    }
    destroy_streams(actor);
    actor_end(actor);
    /* The end of a stream may record an event behind what it freed of small blocks, and so may, at
     * any moment, the thread that gives memory back. */
    for (int i = 0; counts.pending && i < SYNCHRONISATIONS; i++) {
        synchronise(actor);
        vpmm_sim_live_counts(&counts);
    }
    HOLDS(actor, counts.plain == 0 && counts.async == 0 && counts.streams == 0);
    HOLDS(actor, counts.graphs == 0 && counts.graph_execs == 0 && counts.captures == 0);
    HOLDS(actor, counts.contexts == DEVICES && counts.pending == 0);
    HOLDS(actor, vpmm_sim_misuse_count(SIM_CAPTURE_BROKEN) == program.n_broken_captures);
}

void actor_begin(struct actor *actor, uint32_t dice)
{
    actor->dice = dice;
    for (int i = DEVICES - 1; i >= 0; i--) {
        actor_go_to(actor, i);
        MUST(actor, cuStreamCreate(&actor->own[i], CU_STREAM_NON_BLOCKING));
    }
}

void actor_end(struct actor *actor)
{
    for (int i = 0; i < DEVICES; i++)
        MUST(actor, cuStreamDestroy(actor->own[i]));
    atomic_fetch_add(&program.n_calls, actor->n_calls);
}

void actor_go_to(struct actor *actor, int device)
{
    actor->device = device;
    MUST(actor, cuCtxSetCurrent(program.places[device].context));
}

CUstream any_stream(struct actor *actor)
{
    switch (roll(&actor->dice, 8)) {
    case 0:
        return CU_STREAM_LEGACY;
    case 1:
    case 2:
        return CU_STREAM_PER_THREAD;
    case 3:
    case 4:
        return program.places[actor->device].shared[roll(&actor->dice, SHARED_STREAMS)];
    default:
        return actor->own[actor->device];
    }
}
