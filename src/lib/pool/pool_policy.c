/* SPDX-License-Identifier: MIT */
/* Decides how large new extents are, which sizes are harvested, and when memory is spared a move.
 * Must not look at the pool: each answer follows from the arguments alone. */
#include "pool/pool_policy.h"

#include <assert.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Chosen by replaying recorded programs on the simulated device (docs/EXTENTS.md): fewer handles
 * are faster, smaller ones can be harvested sooner and are pinned by less.
 *
 * New memory is cut into at least CUTS extents, and fewer than twice as many while they stay below
 * the limits; so little is one. */
#define CUTS 2
#define EXTENT_MAX (64 * MIB)
#define WHOLE_MAX (32 * MIB)

/* So much at once may make larger ones, of at most this share of what is held then. */
#define LARGE_REQUEST (512 * MIB)
#define LARGE_EXTENT (128 * MIB)
#define LARGE_SHARE 256

/* A large request that dwarfs what is held by this factor comes first; such memory, and what is a
 * large part of all that is held, hardly is there to be taken apart. Nor are large blocks of one
 * size, so many of which were created in a row: they take one another's places. */
#define FIRST_FACTOR 8
#define FIRST_EXTENT GIB
#define ROW_MIN 4
#define HUGE_REQUEST (8 * GIB)
#define HUGE_EXTENT (4 * GIB)

/* At most so many pages, and this share of what is live, are created for the sake of fewer extents.
 */
#define EXTRA_PAGES_MAX 16
#define EXTRA_SHARE 100

/* A request that moves extents weighs as much as so many that need not: where fewer move, no memory
 * is spared for them. What so many of them weigh must have come together, and what twice as many
 * do is the most that counts. */
#define MOVE_WEIGHT ((uint64_t)128)
#define MOVES_MIN ((uint64_t)96)
/* A request that pays for each extent pays for no more than so many. */
#define MOVES_MAX 4

static uint64_t power_of_two_to(uint64_t pages)
{
    return (uint64_t)1 << vpmm_policy_class(pages);
}

unsigned vpmm_policy_class(uint64_t pages)
{
    assert(pages > 0);
    unsigned class = 63 - (unsigned)__builtin_clzll(pages);
    return class < VPMM_CLASSES ? class : VPMM_CLASSES - 1;
}

static uint64_t at_least_one(uint64_t pages)
{
    return pages ? pages : 1;
}

static bool is_large_request(const struct vpmm_pool_params *params, uint64_t pages)
{
    return pages >= LARGE_REQUEST / params->page_bytes;
}

void vpmm_policy_row_note(const struct vpmm_pool_params *params, struct vpmm_row *row,
                          uint64_t pages)
{
    if (!is_large_request(params, pages))
        return;
    row->n = row->pages == pages ? row->n + 1 : 1;
    row->pages = pages;
}

bool vpmm_policy_row_has(const struct vpmm_row *row, uint64_t pages)
{
    return row->n >= ROW_MIN && row->pages == pages;
}

uint64_t vpmm_policy_unit(const struct vpmm_pool_params *params, uint64_t held_pages,
                          bool is_in_row, uint64_t pages)
{
    uint64_t limit = EXTENT_MAX;
    uint64_t cuts = pages <= WHOLE_MAX / params->page_bytes ? 1 : CUTS;
    bool is_large = is_large_request(params, pages);
    if (is_large && (held_pages + pages) / LARGE_SHARE >= LARGE_EXTENT / params->page_bytes)
        limit = LARGE_EXTENT;
    bool is_first = held_pages <= pages / FIRST_FACTOR;
    if (is_large && (is_first || is_in_row))
        limit = FIRST_EXTENT;
    if (pages >= HUGE_REQUEST / params->page_bytes && pages >= held_pages / 4)
        limit = HUGE_EXTENT;
    uint64_t unit = power_of_two_to(at_least_one(pages / cuts));
    uint64_t unit_max = power_of_two_to(at_least_one(limit / params->page_bytes));
    if (params->extent_pages_max && params->extent_pages_max < unit_max)
        unit_max = power_of_two_to(params->extent_pages_max);
    return unit < unit_max ? unit : unit_max;
}

void vpmm_policy_toll_take(struct vpmm_toll *toll, uint64_t moves)
{
    toll->level += (moves < MOVES_MAX ? moves : MOVES_MAX) * MOVE_WEIGHT;
    if (toll->level > 2 * MOVES_MIN * MOVE_WEIGHT)
        toll->level = 2 * MOVES_MIN * MOVE_WEIGHT;
}

void vpmm_policy_toll_ease(struct vpmm_toll *toll, uint64_t number)
{
    if (number <= toll->number)
        return;
    uint64_t passed = number - toll->number;
    toll->level -= passed < toll->level ? passed : toll->level;
    toll->number = number;
}

uint64_t vpmm_policy_spare(const struct vpmm_pool_params *params, const struct vpmm_toll *toll,
                           uint64_t need_pages)
{
    if (toll->level < MOVES_MIN * MOVE_WEIGHT || !params->spare_percent)
        return 0;
    return need_pages + need_pages * params->spare_percent / 100;
}

uint64_t vpmm_policy_extra(uint64_t unit, uint64_t live_pages, uint64_t missing)
{
    uint64_t allowed = live_pages / EXTRA_SHARE;
    uint64_t fewest = vpmm_policy_cuts(unit, missing);
    uint64_t best = 0;
    if (allowed > EXTRA_PAGES_MAX)
        allowed = EXTRA_PAGES_MAX;
    for (uint64_t power = 2; power <= unit; power *= 2) {
        uint64_t extra = (power - missing % power) % power;
        uint64_t cuts = vpmm_policy_cuts(unit, missing + extra);
        if (extra <= allowed && cuts < fewest) {
            fewest = cuts;
            best = extra;
        }
    }
    return best;
}

uint64_t vpmm_policy_cut(uint64_t unit, uint64_t left)
{
    return left >= unit ? unit : power_of_two_to(left);
}

uint64_t vpmm_policy_cuts(uint64_t unit, uint64_t pages)
{
    return pages / unit + (unsigned)__builtin_popcountll(pages % unit);
}

/* The smallest class that has an extent left; all of them are larger than what is missing. */
static bool smallest_left(const struct vpmm_mix *available, const struct vpmm_mix *taken,
                          unsigned *class_out)
{
    for (unsigned i = 0; i < VPMM_CLASSES; i++)
        if (available->n[i] > taken->n[i]) {
            *class_out = i;
            return true;
        }
    return false;
}

static void take_one_too_large(const struct vpmm_mix *available, struct vpmm_harvest *harvest)
{
    if (!smallest_left(available, &harvest->take, &harvest->last_class))
        return;
    harvest->take.n[harvest->last_class]++;
    harvest->extents++;
    harvest->excess = ((uint64_t)1 << harvest->last_class) - harvest->missing;
    harvest->missing = 0;
    for (unsigned i = harvest->last_class; i-- > 0;) {
        uint64_t needless = harvest->excess >> i;
        if (needless > harvest->take.n[i])
            needless = harvest->take.n[i];
        harvest->take.n[i] -= needless;
        harvest->extents -= needless;
        harvest->excess -= needless << i;
    }
}

void vpmm_policy_harvest(const struct vpmm_mix *available, uint64_t pages, bool may_exceed,
                         struct vpmm_harvest *harvest_out)
{
    struct vpmm_harvest harvest;
    memset(&harvest, 0, sizeof harvest);
    harvest.missing = pages;
    for (unsigned i = VPMM_CLASSES; i-- > 0;) {
        uint64_t n = harvest.missing >> i;
        if (n > available->n[i])
            n = available->n[i];
        harvest.take.n[i] = n;
        harvest.extents += n;
        harvest.missing -= n << i;
    }
    if (harvest.missing && may_exceed)
        take_one_too_large(available, &harvest);
    *harvest_out = harvest;
}

bool vpmm_policy_is_better(const struct vpmm_cost *cost, const struct vpmm_cost *than)
{
    if (cost->created_pages != than->created_pages)
        return cost->created_pages < than->created_pages;
    return cost->extents < than->extents;
}
