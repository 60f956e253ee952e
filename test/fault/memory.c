/* SPDX-License-Identifier: MIT */
/* Scenes of one heap's memory: its making, fits, growth, moves, what is unmapped and given back,
 * and a second device. */
#include "rig.h"

#define EAGER_PAGES 12

/* A second order and a second heap beside the rig's: made and unmade. */
static void make_and_unmake(struct rig *rig, uint64_t eager_pages)
{
    struct fixture *f = &rig->f;
    const struct vpmm_heap_params params = {.page_bytes = f->page_bytes,
                                            .root_bytes = 256 * f->page_bytes,
                                            .eager_pages = eager_pages,
                                            .extent_pages_max = 2};
    struct vpmm_order *order = NULL;
    struct vpmm_heap *heap = NULL;
    struct sim_counts before;
    struct sim_counts after;
    uint64_t maps = f->maps_outstanding;
    uint64_t strikes = rig_strikes(rig);
    sim_live_counts(f->sim, &before);
    rig_enter(rig);
    enum vpmm_status status = vpmm_order_create(&f->driver, &f->memory, &order);
    if (!status)
        status = vpmm_heap_create(&params, &f->driver, order, &f->memory, &heap);
    rig_leave(rig);
    if (status)
        assert_true(rig_is_excused(rig, strikes));
    else
        assert_null(vpmm_heap_audit(heap));
    vpmm_heap_destroy(heap);
    vpmm_order_destroy(order);
    sim_live_counts(f->sim, &after);
    assert_in_range(after.handles, before.handles, before.handles + rig->strays[STRAY_HANDLE]);
    assert_in_range(after.reservations, before.reservations,
                    before.reservations + rig->strays[STRAY_RESERVATION]);
    SAME(before.mappings, after.mappings);
    SAME(maps, f->maps_outstanding);
}

static void create(struct rig *rig)
{
    make_and_unmake(rig, 0);
}

static void create_eager(struct rig *rig)
{
    make_and_unmake(rig, EAGER_PAGES);
}

static void first(struct rig *rig)
{
    int p = rig_malloc(rig, 3, NULL);
    int q = rig_malloc(rig, 2, rig->a);
    rig_free(rig, p, NULL);
    rig_free(rig, q, rig->a);
}

static void fit(struct rig *rig)
{
    int p = rig_malloc(rig, 8, rig->a);
    rig_free(rig, p, rig->a);
    int q = rig_malloc(rig, 3, rig->a);
    int r = rig_malloc(rig, 5, rig->a);
    rig_use(rig, q, rig->b);
    rig_free(rig, r, NULL);
    rig_synchronize(rig);
    (void)rig_malloc(rig, 4, NULL);
}

static void grow(struct rig *rig)
{
    (void)rig_malloc(rig, 11, rig->a);
    (void)rig_malloc(rig, 5, NULL);
}

static void extend(struct rig *rig)
{
    int kept = rig_malloc(rig, 2, rig->a);
    int p = rig_malloc(rig, 4, rig->a);
    rig_free(rig, p, rig->a);
    (void)rig_malloc(rig, 9, rig->a);
    rig_use(rig, kept, rig->a);
}

/* Three regions with live ones between them, to be moved together. */
static void scatter(struct rig *rig)
{
    int p[5];
    for (int i = 0; i < 5; i++)
        p[i] = rig_malloc(rig, i % 2 ? 1 : 4, rig->a);
    for (int i = 0; i < 5; i += 2)
        rig_free(rig, p[i], rig->a);
}

static void stitch(struct rig *rig)
{
    scatter(rig);
    (void)rig_malloc(rig, 14, rig->a);
}

static void small_roots(struct fixture_params *params)
{
    params->heap.root_bytes = 14 * params->heap.page_bytes;
}

static void zombies(struct rig *rig)
{
    scatter(rig);
    int stitched = rig_malloc(rig, 14, rig->a);
    rig_reap(rig);
    rig_synchronize(rig);
    rig_reap(rig);
    rig_use(rig, stitched, rig->b);
    rig_free(rig, stitched, NULL);
    rig_reap(rig);
}

static void trim(struct rig *rig)
{
    scatter(rig);
    int stitched = rig_malloc(rig, 14, rig->a);
    rig_free(rig, stitched, NULL);
    rig_synchronize(rig);
    rig_trim(rig, 3 * rig->f.page_bytes);
    rig_trim(rig, UINT64_MAX);
    (void)rig_malloc(rig, 6, rig->a);
}

static void two_devices(struct fixture_params *params)
{
    params->sim.n_devices = 2;
}

/* Whether `device` reaches every page of every live block. */
static void expect_reach(struct rig *rig, int device)
{
    for (int i = 0; i < rig->n_blocks; i++) {
        const struct block *block = &rig->blocks[i].block;
        uint64_t word;
        for (uint64_t page = 0; rig->blocks[i].is_live && page < block->pages; page++)
            assert_true(sim_peek(rig->f.sim, device, block->address + page * rig->f.page_bytes,
                                 &word, sizeof word));
    }
}

static void peers(struct rig *rig)
{
    scatter(rig);
    uint64_t strikes = rig_strikes(rig);
    rig_add_peer(rig, 1);
    bool is_connected = rig_strikes(rig) == strikes;
    (void)rig_malloc(rig, 14, rig->a);
    if (!is_connected) {
        /* Edits go on, and another try may succeed. */
        strikes = rig_strikes(rig);
        rig_add_peer(rig, 1);
        is_connected = rig_strikes(rig) == strikes;
    }
    (void)rig_malloc(rig, 3, NULL);
    if (is_connected)
        expect_reach(rig, 1);
}

const struct scene scenes[] = {
    {"create", NULL, create, false},      {"create-eager", NULL, create_eager, false},
    {"first", NULL, first, false},        {"fit", NULL, fit, false},
    {"grow", NULL, grow, false},          {"extend", NULL, extend, false},
    {"stitch", NULL, stitch, false},      {"stitch-roots", small_roots, stitch, false},
    {"zombies", NULL, zombies, false},    {"trim", NULL, trim, false},
    {"peers", two_devices, peers, false}, {NULL, NULL, NULL, false},
};
