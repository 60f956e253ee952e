/* SPDX-License-Identifier: MIT */
/* Captures, and contexts that come and go. */
#include "program.h"

#include <sched.h>

/* ---- captures ---- */

static void launch_graph(struct actor *actor, CUgraph graph, CUstream stream)
{
    CUgraphExec exec;
    MUST(actor, cuGraphInstantiate(&exec, graph, 0));
    MUST(actor, cuGraphLaunch(exec, stream));
    MUST(actor, cuStreamSynchronize(stream));
    MUST(actor, cuGraphExecDestroy(exec));
}

/* What the capturing stream asks of the pool becomes part of the graph. */
static void capture_memory(struct actor *actor, CUstream stream)
{
    CUdeviceptr address;
    CUresult result = TRY(actor, cuMemAllocAsync(&address, 4 * PAGE_BYTES, stream));
    HOLDS(actor, result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    if (!result)
        MUST(actor, cuMemFreeAsync(address, stream));
}

/* What a relaxed thread may do beside its capture. */
static void work_beside(struct actor *actor)
{
    struct block block;
    if (!block_make(actor, 3 * PAGE_BYTES, NULL, &block))
        return;
    block_ask(actor, &block);
    block_free(actor, &block, NULL);
}

static void end_well(struct actor *actor, CUstream stream, bool is_per_thread, bool is_launched)
{
    CUgraph graph;
    MUST(actor, (is_per_thread ? cuStreamEndCapture_ptsz : cuStreamEndCapture)(stream, &graph));
    if (is_launched)
        launch_graph(actor, graph, stream);
    MUST(actor, cuGraphDestroy(graph));
    atomic_fetch_add(&program.n_captures, 1);
}

/* An allocation that is not for the capturing stream is refused, and ends the capture. */
static void end_badly(struct actor *actor, CUstream stream)
{
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    EXPECT(actor, cuMemAlloc(&address, 4 * PAGE_BYTES), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(actor, cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    atomic_fetch_add(&program.n_broken_captures, 1);
}

void capture_once(struct actor *actor)
{
    CUstream stream = actor->own[actor->device];
    bool is_relaxed = roll(&actor->dice, 2);
    bool is_per_thread = roll(&actor->dice, 2);
    CUstreamCaptureMode mode =
        is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    struct sim_kernel kernel = {.name = "captured"};
    struct block block;
    if (!block_make(actor, 2 * PAGE_BYTES, stream, &block))
        return;
    MUST(actor,
         (is_per_thread ? cuStreamBeginCapture_v2_ptsz : cuStreamBeginCapture)(stream, mode));
    for (int i = 0; i < 8; i++) {
        MUST(actor, vpmm_sim_launch(stream, &kernel));
        (void)sched_yield();
    }
    if (is_relaxed)
        work_beside(actor);
    if (!is_relaxed && roll(&actor->dice, 4) == 0) {
        end_badly(actor, stream);
    } else {
        bool is_launched = roll(&actor->dice, 2);
        capture_memory(actor, stream);
        end_well(actor, stream, is_per_thread, is_launched);
    }
    block_use(actor, &block, stream);
    block_free(actor, &block, stream);
}

/* ---- contexts ---- */

/* Blocks of the two kinds: cuMemAlloc's die with the context, cuMemAllocAsync's live on. */
struct estate {
    struct block kept, freed, orphan;
    bool has_kept, has_freed, has_orphan;
};

static struct estate make_estate(struct actor *actor, CUstream stream)
{
    struct estate estate;
    estate.has_kept =
        block_make(actor, (1 + roll(&actor->dice, 4)) * PAGE_BYTES, stream, &estate.kept);
    estate.has_freed =
        block_make(actor, (1 + roll(&actor->dice, 4)) * PAGE_BYTES, stream, &estate.freed);
    estate.has_orphan =
        block_make(actor, (1 + roll(&actor->dice, 4)) * PAGE_BYTES, NULL, &estate.orphan);
    if (estate.has_kept)
        block_use(actor, &estate.kept, stream);
    if (estate.has_orphan)
        block_use(actor, &estate.orphan, CU_STREAM_PER_THREAD);
    if (estate.has_freed) {
        block_use(actor, &estate.freed, stream);
        block_free(actor, &estate.freed, roll(&actor->dice, 2) ? stream : NULL);
    }
    return estate;
}

void context_once(struct actor *actor)
{
    CUcontext context;
    CUstream stream;
    MUST(actor, cuCtxCreate_v2(&context, 0, actor->device));
    MUST(actor, cuStreamCreate(&stream, roll(&actor->dice, 2) ? CU_STREAM_NON_BLOCKING : 0));
    struct estate estate = make_estate(actor, stream);
    MUST(actor, cuCtxDestroy(context));
    actor_go_to(actor, actor->device);
    atomic_fetch_add(&program.n_contexts, 1);
    if (!estate.has_kept)
        return;
    estate.kept.event = NULL; /* it went with its context */
    block_ask(actor, &estate.kept);
    block_use(actor, &estate.kept, actor->own[actor->device]);
    if (!shelf_put(&program.shelf, &estate.kept))
        block_free(actor, &estate.kept, any_stream(actor));
}
