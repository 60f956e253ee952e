/* SPDX-License-Identifier: MIT */
#include "rig.h"

#include "codes.h"
#include "pool/pool_internal.h"

#include <string.h>

#define SMALL_BYTES ((size_t)64 << 10)

/* ---- what fails ---- */

static bool is_aimed_at(const struct aim *aim, const char *call)
{
    bool is_metadata = strcmp(call, METADATA) == 0;
    return aim->call &&
           (strcmp(aim->call, ANY_CALL) == 0 ? !is_metadata : strcmp(aim->call, call) == 0);
}

static bool hits(struct rig *rig, int i, const struct aim *aim, const char *call)
{
    if (!is_aimed_at(aim, call))
        return false;
    rig->uses[i]++;
    bool is_hit = aim->forever ? rig->uses[i] >= aim->nth : rig->uses[i] == aim->nth;
    rig->strikes[i] += is_hit;
    return is_hit;
}

/* The aim that hits this use of `call`, or NULL. */
static const struct aim *struck_by(struct rig *rig, const char *call)
{
    const struct faults *faults = rig->faults;
    if (!rig->is_armed)
        return NULL;
    bool is_second = rig->strikes[0] && hits(rig, 1, &faults->then, call);
    if (hits(rig, 0, &faults->first, call))
        return &faults->first;
    return is_second ? &faults->then : NULL;
}

/* A handle whose release fails is lost only where growth is undone: something else failed before,
 * or the device is too small. Elsewhere it is kept for another try. */
static void note_stray(struct rig *rig, const char *call)
{
    static const char *const names[STRAY_KINDS] = {
        [STRAY_HANDLE] = "cuMemRelease",
        [STRAY_RESERVATION] = "cuMemAddressFree",
        [STRAY_EVENT] = "cuEventDestroy",
        [STRAY_MODE] = "cuThreadExchangeStreamCaptureMode",
    };
    bool is_release = strcmp(call, names[STRAY_HANDLE]) == 0;
    rig->has_more_failed |= !is_release;
    for (int kind = 0; kind < STRAY_KINDS; kind++)
        if (strcmp(names[kind], call) == 0 &&
            (!is_release || rig->has_more_failed || rig->is_tight))
            rig->strays[kind]++;
}

static void before_call(void *self, const char *call)
{
    struct rig *rig = self;
    if (!rig->is_inside)
        return;
    if (!code_has(call))
        fail_msg("%s is not in codes.def", call);
    CUresult likely = code_likely(call);
    const struct aim *aim = likely == CUDA_SUCCESS ? NULL : struck_by(rig, call);
    if (!aim)
        return;
    CUresult code = aim->code == LIKELY_CODE ? likely : aim->code;
    note_stray(rig, call);
    sim_fault_set(rig->f.sim, call, 1, code, false);
}

/* Most pieces are small and short-lived: they come from a store that each run begins anew. */
static _Alignas(4096) char store[16 << 20];

static bool is_in_store(const char *address)
{
    return address >= store && address < store + sizeof store;
}

static void *memory_map(void *self, size_t bytes)
{
    struct rig *rig = self;
    if (rig->is_inside && struck_by(rig, METADATA))
        return NULL;
    size_t rounded_bytes = (bytes + 4095) / 4096 * 4096;
    char *address = store + rig->stored_bytes;
    rig->f.maps_outstanding++;
    if (rounded_bytes > SMALL_BYTES || rounded_bytes > sizeof store - rig->stored_bytes)
        return vpmm_memory_system.map(NULL, bytes);
    rig->stored_bytes += rounded_bytes;
    return memset(address, 0, bytes);
}

/* What is used afterwards is found spoilt. */
static void memory_unmap(void *self, void *address, size_t bytes)
{
    struct rig *rig = self;
    rig->f.maps_outstanding--;
    if (is_in_store(address))
        memset(address, 0xdd, bytes);
    else
        vpmm_memory_system.unmap(NULL, address, bytes);
}

void rig_enter(struct rig *rig)
{
    rig->is_inside = true;
}

void rig_leave(struct rig *rig)
{
    rig->is_inside = false;
    if (rig->f.heap)
        fixture_audit(&rig->f);
}

uint64_t rig_strikes(const struct rig *rig)
{
    return rig->strikes[0] + rig->strikes[1];
}

bool rig_is_excused(const struct rig *rig, uint64_t before)
{
    return rig_strikes(rig) != before;
}

/* ---- the machine ---- */

void rig_setup(struct rig *rig, const struct scene *scene, const struct faults *faults)
{
    struct fixture_params params;
    memset(rig, 0, sizeof *rig);
    rules_forget();
    rules_params(&params);
    params.sim.before_call = before_call;
    params.sim.self = rig;
    params.sim.granularity = params.heap.page_bytes = RIG_PAGE_BYTES;
    params.sim.device_bytes = 128 * RIG_PAGE_BYTES;
    params.heap.root_bytes = 512 * RIG_PAGE_BYTES;
    params.heap.slack_bytes = 64 * RIG_PAGE_BYTES;
    params.heap.extent_pages_max = 2;
    if (scene->params)
        scene->params(&params);
    rig->faults = faults;
    rig->is_tight = scene->is_tight;
    fixture_setup(&rig->f, &params);
    rig->does_wait = params.heap.free_waits || !rig->f.driver.event_record_context;
    rig->f.memory = (struct vpmm_memory){rig, memory_map, memory_unmap};
    rig->a = fixture_stream(&rig->f, CU_STREAM_NON_BLOCKING);
    rig->b = fixture_stream(&rig->f, CU_STREAM_NON_BLOCKING);
    rig->home = rig->a;
    rig->blocking = fixture_stream(&rig->f, CU_STREAM_DEFAULT);
    rig->is_armed = true;
}

void rig_synchronize(struct rig *rig)
{
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(rig->f.sim));
    SAME(0, blocks_wrong());
}

/* ---- the end ---- */

/* All that is held goes back; nothing may be stuck any more. The first look records what is parked;
 * where a context cannot be recorded, a cudaFree does instead. */
static void empty(struct rig *rig)
{
    rig_free(rig, rig_malloc(rig, 1, NULL), NULL);
    vpmm_heap_reap(rig->f.heap);
    rig_synchronize(rig);
    (void)vpmm_heap_trim(rig->f.heap, UINT64_MAX);
    fixture_audit(&rig->f);
    struct vpmm_pool_totals totals = fixture_totals(&rig->f);
    if (totals.held_pages || totals.zombie_pages || totals.quarantined_pages || totals.busy_pages)
        fail_msg("the heap cannot be emptied: %s", fixture_layout(&rig->f));
    const struct vpmm_pool *pool = vpmm_heap_pool(rig->f.heap);
    if (pool->spare_regions || pool->spare_extents || pool->planned_mappings || pool->planned_pages)
        fail_msg(
            "a plan that has ended still holds %u regions, %u extents, %llu mappings, %llu pages",
            (unsigned)pool->spare_regions, (unsigned)pool->spare_extents,
            (unsigned long long)pool->planned_mappings, (unsigned long long)pool->planned_pages);
}

static void free_all(struct rig *rig)
{
    for (int i = 0; i < rig->n_blocks; i++) {
        if (!rig->blocks[i].is_live)
            continue;
        assert_true(rig->blocks[i].is_blank || block_is_intact(&rig->f, &rig->blocks[i].block));
        rig_free(rig, i, i % 2 ? NULL : rig->a);
        assert_false(rig->blocks[i].is_live);
    }
    rig->n_blocks = 0;
}

static void take_back(const struct rig *rig)
{
    struct vpmm_pool *pool = (struct vpmm_pool *)(uintptr_t)vpmm_heap_pool(rig->f.heap);
    for (int i = 0; i < rig->n_given_up; i++)
        vpmm_pool_free(pool, rig->given_up[i], VPMM_FENCE_NONE, 0);
}

/* Growth, fits, a stitch, frees of both kinds: all served. */
static void serve_a_round(struct rig *rig)
{
    struct vpmm_heap_counts before;
    struct vpmm_heap_counts after;
    /* What the driver would not take back may fill a small device. */
    if (rig->is_tight && rig->strays[STRAY_HANDLE])
        return;
    vpmm_heap_counts(rig->f.heap, &before);
    int p = rig_malloc(rig, 6, rig->a);
    int kept = rig_malloc(rig, 1, NULL);
    int q = rig_malloc(rig, 4, rig->a);
    rig_free(rig, p, rig->a);
    rig_free(rig, q, rig->a);
    int stitched = rig_malloc(rig, 10, rig->a);
    rig_use(rig, stitched, rig->b);
    rig_free(rig, kept, NULL);
    rig_free(rig, stitched, rig->b);
    vpmm_heap_counts(rig->f.heap, &after);
    SAME(before.mallocs + 4, after.mallocs);
    assert_true(after.stitches > before.stitches);
    rig->n_blocks = 0;
}

static void expect_nothing_left(const struct rig *rig)
{
    struct sim_counts counts;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    sim_live_counts(rig->f.sim, &counts);
    SAME(CUDA_SUCCESS, sim_thread_exchange_stream_capture_mode(rig->f.sim, &mode));
    if (!rig->strays[STRAY_MODE])
        SAME(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    assert_in_range(counts.handles, 0, rig->strays[STRAY_HANDLE]);
    assert_in_range(counts.reservations, 0, rig->strays[STRAY_RESERVATION]);
    assert_in_range(counts.events, 0, rig->strays[STRAY_EVENT]);
    SAME(0, counts.mappings);
    SAME(0, rig->f.maps_outstanding);
}

void rig_finish(struct rig *rig)
{
    rig->is_armed = false;
    rig_synchronize(rig);
    free_all(rig);
    take_back(rig);
    empty(rig);
    serve_a_round(rig);
    empty(rig);
    vpmm_heap_destroy(rig->f.heap);
    vpmm_order_destroy(rig->f.order);
    expect_nothing_left(rig);
    sim_destroy(rig->f.sim);
}

/* ---- time ---- */

uint64_t __wrap_vpmm_now_ms(void);
void __wrap_vpmm_pause(void);

/* The heap's own waits, in no time. */
uint64_t __wrap_vpmm_now_ms(void)
{
    static uint64_t now_ms;
    return now_ms += 100;
}

void __wrap_vpmm_pause(void)
{
}
