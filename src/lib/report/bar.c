/* SPDX-License-Identifier: MIT */
/* Draws the regions of a device as one row of characters. The router may be another process's, so
 * this must not lock or change anything. */
#include "report/report_internal.h"

#include <string.h>

/* What cells show, in the order in which they win where they are even. */
enum kind {
    LIVE,
    PENDING,
    FREE,
    ZOMBIE,
    BUSY,
    QUARANTINED,
    KINDS
};
static const char marks[KINDS] = {'#', '+', '-', 'z', '?', '!'};
#define HOLE_MARK '.'
/* More are not there: the metadata are damaged. What is less is a whole number as a double, too. */
#define PAGES_MAX ((uint64_t)1 << 52)

struct bar {
    uint64_t pages[VPMM_REPORT_CELLS_MAX][KINDS];
    uint64_t all_pages; /* of the addresses that are shown */
    unsigned n_cells;
};

/* A walk that leaves out the hole at the end of each root. */
struct walk {
    uint64_t end;  /* the address behind the last region */
    uint64_t at;   /* pages before it */
    uint64_t hole; /* pages of the hole that it was, not counted yet */
    uint64_t cursor;
};

static bool kind_of(const struct vpmm_region_view *region, const struct vpmm_order *order,
                    enum kind *kind_out)
{
    static const enum kind kinds[] = {
        [VPMM_REGION_UNUSED] = BUSY, [VPMM_REGION_FREE] = FREE,
        [VPMM_REGION_LIVE] = LIVE,   [VPMM_REGION_ZOMBIE] = ZOMBIE,
        [VPMM_REGION_BUSY] = BUSY,   [VPMM_REGION_QUARANTINED] = QUARANTINED,
    };
    if (region->state == VPMM_REGION_HOLE || (unsigned)region->state > VPMM_REGION_QUARANTINED)
        return false;
    *kind_out = kinds[region->state];
    if (*kind_out == FREE && region->fence &&
        vpmm_order_ask(order, region->fence, 0) != VPMM_VERDICT_COMPLETE)
        *kind_out = PENDING;
    return true;
}

/* The next region that is no hole, which begins behind `walk->at` pages. */
static bool next(const struct vpmm_pool *pool, uint64_t page_bytes, struct walk *walk,
                 struct vpmm_region_view *region_out)
{
    while (vpmm_pool_next(pool, &walk->cursor, region_out)) {
        if (region_out->begins_root || region_out->address != walk->end)
            walk->hole = 0;
        walk->end = region_out->address + region_out->pages * page_bytes;
        if (region_out->state != VPMM_REGION_HOLE) {
            walk->at += walk->hole;
            walk->hole = 0;
            return true;
        }
        walk->hole = region_out->pages;
    }
    return false;
}

static uint64_t count_pages(const struct vpmm_pool *pool, uint64_t page_bytes)
{
    struct walk walk = {0};
    struct vpmm_region_view region;
    while (next(pool, page_bytes, &walk, &region))
        walk.at += region.pages;
    return walk.at;
}

/* Where cell `n` begins. */
static uint64_t begin_of(const struct bar *bar, uint64_t n)
{
    return (uint64_t)((double)bar->all_pages * (double)n / bar->n_cells);
}

static void add(struct bar *bar, enum kind kind, uint64_t at, uint64_t pages)
{
    uint64_t end = at + pages < bar->all_pages ? at + pages : bar->all_pages;
    uint64_t cell = (uint64_t)((double)at / (double)bar->all_pages * bar->n_cells);
    while (cell > 0 && begin_of(bar, cell) > at)
        cell--;
    for (; cell < bar->n_cells && begin_of(bar, cell) < end; cell++) {
        uint64_t from = begin_of(bar, cell), to = begin_of(bar, cell + 1);
        from = from > at ? from : at;
        to = to < end ? to : end;
        bar->pages[cell][kind] += to > from ? to - from : 0;
        /* A bar of more cells than pages. */
        if (begin_of(bar, cell) == begin_of(bar, cell + 1))
            bar->pages[cell][kind]++;
    }
}

static char mark_of(const struct bar *bar, unsigned cell)
{
    uint64_t most = begin_of(bar, cell + 1) - begin_of(bar, cell);
    char mark = HOLE_MARK;
    for (unsigned kind = 0; kind < KINDS; kind++)
        most -= bar->pages[cell][kind] < most ? bar->pages[cell][kind] : most;
    for (unsigned kind = KINDS; kind-- > 0;) {
        if (bar->pages[cell][kind] && bar->pages[cell][kind] >= most) {
            most = bar->pages[cell][kind];
            mark = marks[kind];
        }
    }
    return mark;
}

void vpmm_report_bar(struct vpmm_router *router, int device, char *cells_out, unsigned n_cells)
{
    const struct vpmm_heap *heap = vpmm_router_heap(router, device);
    struct bar bar = {.n_cells = n_cells};
    struct walk walk = {0};
    struct vpmm_region_view region;
    enum kind kind;
    memset(cells_out, HOLE_MARK, n_cells);
    uint64_t page_bytes = heap ? vpmm_heap_page_bytes(heap) : 0;
    bar.all_pages = heap ? count_pages(vpmm_heap_pool(heap), page_bytes) : 0;
    if (bar.all_pages > PAGES_MAX)
        bar.all_pages = 0;
    while (bar.all_pages && next(vpmm_heap_pool(heap), page_bytes, &walk, &region)) {
        if (kind_of(&region, vpmm_router_order(router), &kind) && walk.at < bar.all_pages)
            add(&bar, kind, walk.at, region.pages);
        walk.at += region.pages;
    }
    for (unsigned cell = 0; bar.all_pages && cell < n_cells; cell++)
        cells_out[cell] = mark_of(&bar, cell);
}
