/* SPDX-License-Identifier: MIT */
/* Scenes of frees and their fences: both kinds of memory, every kind of stream, older drivers,
 * captures, contexts that die. */
#include "rig.h"

static void kinds(struct rig *rig)
{
    int p = rig_malloc(rig, 2, NULL);
    int q = rig_malloc(rig, 2, NULL);
    int r = rig_malloc(rig, 2, rig->a);
    int s = rig_malloc(rig, 2, rig->a);
    rig_free(rig, p, NULL);
    rig_free(rig, q, rig->b);
    rig_free(rig, r, NULL);
    rig_free(rig, s, rig->a);
    rig_reap(rig);
    rig_synchronize(rig);
    (void)rig_malloc(rig, 8, NULL);
}

/* Pages that a stream took back before its own work on them was complete, freed by another stream,
 * and by cudaFree; then moved. */
static void prior(struct rig *rig)
{
    for (int i = 0; i < 2; i++) {
        int p = rig_malloc(rig, 4, rig->a);
        rig_free(rig, p, rig->a);
        int q = rig_malloc_blank(rig, 4, rig->a);
        rig_free(rig, q, i ? NULL : rig->b);
        (void)rig_malloc(rig, 4, i ? NULL : rig->b);
    }
    int r = rig_malloc(rig, 3, rig->b);
    rig_synchronize(rig);
    int s = rig_malloc(rig, 6, rig->b);
    rig_free(rig, r, rig->a);
    rig_free(rig, s, rig->a);
}

/* One extent under the fences of three streams. */
static void shared(struct rig *rig)
{
    int p[4];
    for (int i = 0; i < 4; i++)
        p[i] = rig_malloc(rig, 1, rig->a);
    rig_free(rig, p[0], rig->a);
    rig_free(rig, p[1], rig->b);
    rig_free(rig, p[2], rig->blocking);
    rig_free(rig, p[3], NULL);
    (void)rig_malloc(rig, 4, rig->a);
    rig_synchronize(rig);
    (void)rig_malloc(rig, 6, rig->b);
}

static void special_streams(struct rig *rig)
{
    int p = rig_malloc(rig, 3, CU_STREAM_LEGACY);
    int q = rig_malloc(rig, 3, CU_STREAM_PER_THREAD);
    rig_use(rig, p, rig->blocking);
    rig_free(rig, p, CU_STREAM_LEGACY);
    rig_free(rig, q, CU_STREAM_PER_THREAD);
    int r = rig_malloc(rig, 2, CU_STREAM_PER_THREAD);
    int s = rig_malloc(rig, 4, CU_STREAM_LEGACY);
    rig_free(rig, r, rig->blocking);
    rig_free(rig, s, rig->a);
}

/* What is freed during a capture is parked, and comes back after it. */
static void capture(struct rig *rig)
{
    int p = rig_malloc(rig, 4, NULL);
    int q = rig_malloc(rig, 4, rig->a);
    int r = rig_malloc(rig, 2, CU_STREAM_LEGACY);
    rig_capture_begin(rig, rig->b);
    rig_free(rig, p, NULL);
    rig_free(rig, q, rig->a);
    rig_free(rig, r, CU_STREAM_LEGACY);
    (void)rig_malloc(rig, 4, rig->a);
    rig_capture_end(rig, rig->b);
    rig_reap(rig);
    rig_synchronize(rig);
    int s = rig_malloc(rig, 7, NULL);
    rig_capture_begin(rig, rig->blocking);
    rig_free(rig, s, NULL);
    rig_capture_end(rig, rig->blocking);
}

/* Another context, current, and a stream of it. */
static CUcontext enter_context(struct rig *rig)
{
    CUcontext context;
    SAME(CUDA_SUCCESS, sim_ctx_create(rig->f.sim, 0, 0, &context));
    rig->home = fixture_stream(&rig->f, CU_STREAM_NON_BLOCKING);
    return context;
}

/* cudaMalloc memory goes with its context; cudaMallocAsync memory stays, and whoever used it last
 * is gone. */
static void outlive(struct rig *rig, CUcontext context, CUstream stream)
{
    for (int i = 0; i < rig->n_blocks; i++) {
        rig->blocks[i].is_live &= rig->blocks[i].is_async || rig->blocks[i].context != context;
        if (rig->blocks[i].last == stream)
            rig->blocks[i].last = rig->a;
    }
    rig->home = rig->a;
}

/* As the wrapper of cuCtxDestroy does. */
static void end_context(struct rig *rig, CUcontext context)
{
    vpmm_context_handle handle = (vpmm_context_handle)(void *)context;
    struct vpmm_context *record;
    rig_enter(rig);
    bool is_known = !vpmm_order_context(rig->f.order, handle, &record);
    struct vpmm_departure departure = vpmm_order_context_leaving(rig->f.order, handle, true);
    rig_leave(rig);
    SAME(CUDA_SUCCESS, sim_ctx_destroy(rig->f.sim, context));
    rig_enter(rig);
    vpmm_order_context_left(rig->f.order, &departure, true);
    if (is_known)
        vpmm_heap_context_gone(rig->f.heap, vpmm_context_id(record));
    rig_leave(rig);
    outlive(rig, context, rig->home);
}

static void death(struct rig *rig)
{
    CUcontext context = enter_context(rig);
    int mine = rig_malloc(rig, 3, NULL);
    int freed = rig_malloc(rig, 3, NULL);
    int async = rig_malloc(rig, 2, rig->home);
    int used = rig_malloc(rig, 2, rig->home);
    rig_use(rig, mine, rig->home);
    rig_free(rig, freed, NULL);
    rig_free(rig, used, rig->home);
    end_context(rig, context);
    (void)rig_malloc(rig, 6, rig->a);
    rig_free(rig, async, NULL);
}

/* Memory of a dead context freed by cudaFree in a context that was never seen, under its work. */
static void orphan(struct rig *rig)
{
    CUcontext dead = enter_context(rig);
    int async = rig_malloc(rig, 4, rig->home);
    end_context(rig, dead);
    CUcontext heir = enter_context(rig);
    if (async != NO_BLOCK)
        rig->blocks[async].last = rig->home;
    rig_use(rig, async, rig->home);
    rig_free(rig, async, NULL);
    (void)rig_malloc(rig, 4, rig->a);
    rig_synchronize(rig);
    end_context(rig, heir);
}

static void without_context_records(struct fixture_params *params)
{
    params->sim.driver_version = 12040;
}

static void without_stream_ids(struct fixture_params *params)
{
    params->sim.driver_version = 11080;
}

static void waiting_frees(struct fixture_params *params)
{
    params->heap.free_waits = true;
}

const struct scene scenes[] = {
    {"kinds", NULL, kinds, false},
    {"kinds-waiting", waiting_frees, kinds, false},
    {"kinds-12.4", without_context_records, kinds, false},
    {"kinds-11.8", without_stream_ids, kinds, false},
    {"prior", NULL, prior, false},
    {"prior-12.4", without_context_records, prior, false},
    {"shared", NULL, shared, false},
    {"special-streams", NULL, special_streams, false},
    {"special-streams-11.8", without_stream_ids, special_streams, false},
    {"capture", NULL, capture, false},
    {"capture-12.4", without_context_records, capture, false},
    {"death", NULL, death, false},
    {"death-11.8", without_stream_ids, death, false},
    {"orphan", NULL, orphan, false},
    {NULL, NULL, NULL, false},
};
