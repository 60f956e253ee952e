/* SPDX-License-Identifier: MIT */
#include "pool/policy.h"

#include <assert.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)

/* An allocation's new memory is cut into at least so many extents, and fewer than twice as many
 * while they stay below the limits: fewer handles are faster, smaller ones can be harvested sooner.
 */
#define CUTS 4

/* One extent is at most so large; for a request of at least HUGE_REQUEST, at most HUGE_EXTENT. */
#define LARGE_EXTENT GIB
#define HUGE_REQUEST (32 * GIB)
#define HUGE_EXTENT (4 * GIB)

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

uint64_t vpmm_policy_unit(const struct vpmm_pool_params *params, uint64_t pages)
{
    uint64_t limit = pages >= HUGE_REQUEST / params->page_bytes ? HUGE_EXTENT : LARGE_EXTENT;
    uint64_t unit = power_of_two_to(at_least_one(pages / CUTS));
    uint64_t unit_max = power_of_two_to(at_least_one(limit / params->page_bytes));
    if (params->extent_pages_max && params->extent_pages_max < unit_max)
        unit_max = power_of_two_to(params->extent_pages_max);
    return unit < unit_max ? unit : unit_max;
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
    harvest->surplus = ((uint64_t)1 << harvest->last_class) - harvest->missing;
    harvest->missing = 0;
    for (unsigned i = harvest->last_class; i-- > 0;) {
        uint64_t needless = harvest->surplus >> i;
        if (needless > harvest->take.n[i])
            needless = harvest->take.n[i];
        harvest->take.n[i] -= needless;
        harvest->extents -= needless;
        harvest->surplus -= needless << i;
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
