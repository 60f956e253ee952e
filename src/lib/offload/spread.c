/* SPDX-License-Identifier: MIT */
/* Chooses residents, the size of the ring, and the slots of each streamed group. Must not need more
 * than the budget at any plan that it answers. */
#include "offload/spread.h"

/* A group that stays in use for longer would hold that many others' slots apart. */
#define SPAN_MAX 8u
/* What the ring has beyond its largest step lets the next copy begin before that step is done: this
 * share of the step, or of what is copied in a pass, and no more than the step once more. */
#define RING_SHARE 8u
#define COPIED_SHARE 128u
/* Groups of the largest size are kept out of the ring where they take this share of what is left at
 * most: each byte of them makes the ring smaller for all. */
#define OUTLIER_SHARE 4u

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_streamed(const struct vpmm_spread_item *item)
{
    return item->n_chunks && !item->is_resident;
}

/* ---- what is needed ---- */

static void mark_scheduled(struct vpmm_spread *spread, bool *has_spans_out)
{
    *has_spans_out = false;
    for (uint32_t i = 0; i < spread->n_items; i++) {
        struct vpmm_spread_item *item = &spread->items[i];
        item->is_forced = item->is_scheduled = false;
        item->is_resident = item->is_kept;
    }
    for (uint32_t i = 0; i < spread->n_steps; i++)
        *has_spans_out |= spread->steps[i].span != 0;
}

/* Slots follow the order of the steps, so what is in use together must lie near each other there. A
 * group with two places in the order has slots at one of them only. */
static void force(struct vpmm_spread *spread)
{
    bool has_spans;
    mark_scheduled(spread, &has_spans);
    for (uint32_t i = 0; i < spread->n_steps; i++) {
        struct vpmm_spread_item *item = &spread->items[spread->steps[i].item];
        bool is_repeated = item->is_scheduled && has_spans;
        item->is_scheduled = true;
        if (spread->steps[i].span > SPAN_MAX || is_repeated)
            item->is_forced = item->is_resident = true;
    }
}

/* The fewest chunks in which all that is in use at once lies side by side. */
static uint64_t ring_min(const struct vpmm_spread *spread)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        if (is_streamed(&spread->items[i]))
            most = larger(most, spread->items[i].n_chunks);
    for (uint32_t i = 0; i < spread->n_steps; i++) {
        uint64_t sum = 0;
        for (uint32_t j = i; j < spread->n_steps && j - i <= spread->steps[i].span; j++) {
            const struct vpmm_spread_item *item = &spread->items[spread->steps[j].item];
            sum += is_streamed(item) ? item->n_chunks : 0;
        }
        if (is_streamed(&spread->items[spread->steps[i].item]))
            most = larger(most, sum);
    }
    return most;
}

static uint64_t largest_streamed(const struct vpmm_spread *spread)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        if (is_streamed(&spread->items[i]))
            most = larger(most, spread->items[i].n_chunks);
    return most;
}

static uint64_t resident_chunks(const struct vpmm_spread *spread)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        sum += spread->items[i].is_resident ? spread->items[i].n_chunks : 0;
    return sum;
}

void vpmm_spread_need(struct vpmm_spread *spread)
{
    uint64_t all = 0;
    force(spread);
    for (uint32_t i = 0; i < spread->n_items; i++)
        all += spread->items[i].n_chunks;
    uint64_t floor = resident_chunks(spread) + ring_min(spread);
    uint64_t smooth = floor + largest_streamed(spread);
    spread->floor_chunks = floor < all ? floor : all;
    spread->smooth_chunks = smooth < all ? smooth : all;
    spread->all_chunks = all;
}

/* ---- the ring ---- */

static uint64_t ring_wish(const struct vpmm_spread *spread)
{
    uint64_t least = ring_min(spread), step = largest_streamed(spread);
    uint64_t copied = spread->all_chunks - spread->budget_chunks;
    uint64_t slack = larger(larger(step / RING_SHARE, copied / COPIED_SHARE), spread->slack_chunks);
    uint64_t wish = least + (slack < step && !spread->is_wide ? slack : step);
    return larger(spread->ring_wish_chunks ? spread->ring_wish_chunks : wish, least);
}

/* Chunks that a lap must be longer for a whole number of laps to end with the pass. */
static uint64_t padding(uint64_t streamed, uint64_t ring)
{
    return streamed <= ring || streamed % ring == 0 ? 0 : ring - streamed % ring;
}

static uint64_t streamed_chunks(const struct vpmm_spread *spread)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        if (spread->items[i].is_scheduled && is_streamed(&spread->items[i]))
            sum += spread->items[i].n_chunks;
    return sum;
}

/* The end of a pass meets its beginning without a gap where laps are whole. */
static uint64_t ring_choose(uint64_t streamed, uint64_t least, uint64_t most)
{
    uint64_t best = least;
    for (uint64_t ring = least; ring <= most; ring++)
        if (padding(streamed, ring) < padding(streamed, best))
            best = ring;
    return best;
}

/* Positions in the order of first use; the padding is spread over the pass. */
static void lay(struct vpmm_spread *spread, uint64_t streamed, uint64_t pad)
{
    uint64_t at = 0, seen = 0, skipped = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        spread->items[i].position = UINT64_MAX;
    for (uint32_t i = 0; i < spread->n_steps; i++) {
        struct vpmm_spread_item *item = &spread->items[spread->steps[i].item];
        if (!is_streamed(item) || item->position != UINT64_MAX)
            continue;
        uint64_t due = pad * seen / streamed;
        at += due - skipped;
        skipped = due;
        item->position = at;
        at += item->n_chunks;
        seen += item->n_chunks;
    }
    for (uint32_t i = 0; i < spread->n_items; i++)
        if (spread->items[i].position == UINT64_MAX)
            spread->items[i].position = 0;
}

/* Whether no two groups that are in use together share a slot. */
static bool spans_fit(const struct vpmm_spread *spread)
{
    for (uint32_t i = 0; i < spread->n_steps; i++) {
        const struct vpmm_spread_item *first = &spread->items[spread->steps[i].item];
        for (uint32_t j = i; j < spread->n_steps && j - i <= spread->steps[i].span; j++) {
            const struct vpmm_spread_item *item = &spread->items[spread->steps[j].item];
            if (is_streamed(first) && is_streamed(item) && item->position >= first->position &&
                item->position + item->n_chunks - first->position > spread->ring_chunks)
                return false;
        }
    }
    return true;
}

/* ---- residents ---- */

/* The size of the largest streamed groups, and what they come to. */
static uint64_t count_largest(const struct vpmm_spread *spread, uint64_t *sum_out)
{
    uint64_t most = largest_streamed(spread);
    *sum_out = 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        if (is_streamed(&spread->items[i]) && spread->items[i].n_chunks == most)
            *sum_out += most;
    return most;
}

static void set_resident(struct vpmm_spread *spread, uint64_t n_chunks, bool is_resident)
{
    for (uint32_t i = 0; i < spread->n_items; i++) {
        struct vpmm_spread_item *item = &spread->items[i];
        if (item->n_chunks == n_chunks && !item->is_kept && !item->is_forced)
            item->is_resident = is_resident;
    }
}

static void keep_outliers(struct vpmm_spread *spread)
{
    for (;;) {
        uint64_t sum, before = ring_wish(spread);
        uint64_t most = count_largest(spread, &sum);
        uint64_t left = spread->budget_chunks - resident_chunks(spread);
        if (!most || sum > left / OUTLIER_SHARE)
            return;
        set_resident(spread, most, true);
        if (largest_streamed(spread) && ring_wish(spread) < before &&
            resident_chunks(spread) + ring_wish(spread) <= spread->budget_chunks)
            continue;
        set_resident(spread, most, false);
        return;
    }
}

/* Groups of about the same size: from a power of two to the next. */
static unsigned size_class(uint64_t n_chunks)
{
    return 63u - (unsigned)__builtin_clzll(n_chunks);
}

static uint64_t class_chunks(const struct vpmm_spread *spread, unsigned class)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < spread->n_items; i++) {
        const struct vpmm_spread_item *item = &spread->items[i];
        if (item->is_scheduled && is_streamed(item) && size_class(item->n_chunks) == class)
            sum += item->n_chunks;
    }
    return sum;
}

/* Of the streamed groups of a class, which come to `total`, as many as come to `room` chunks,
 * evenly through the pass. */
static uint64_t spread_class(struct vpmm_spread *spread, unsigned class, uint64_t total,
                             uint64_t room)
{
    uint64_t seen = 0, given = 0;
    for (uint32_t i = 0; i < spread->n_steps; i++) {
        struct vpmm_spread_item *item = &spread->items[spread->steps[i].item];
        if (!is_streamed(item) || item->position == 0 || size_class(item->n_chunks) != class)
            continue;
        item->position = 0;
        seen += item->n_chunks;
        uint64_t target = (uint64_t)((double)room * (double)seen / (double)total);
        if (given + item->n_chunks <= room && given + item->n_chunks <= target) {
            item->is_resident = true;
            given += item->n_chunks;
        }
    }
    return given;
}

/* The larger a group, the longer its copy: so large ones are spread first, and by themselves. Where
 * there is room for half of them they get that: then, of two that are used one after the other, one
 * is resident, and the other's copy has its time to hide in. */
static uint64_t spread_evenly(struct vpmm_spread *spread, uint64_t room)
{
    uint64_t left = streamed_chunks(spread), given = 0;
    for (unsigned class = 64; class -- > 0 && left > 0;) {
        uint64_t total = class_chunks(spread, class);
        if (!total)
            continue;
        uint64_t share = (uint64_t)((double)(room - given) * (double)total / (double)left);
        share = larger(share, total / 2 < room - given ? total / 2 : room - given);
        given += spread_class(spread, class, total, share);
        left -= total;
    }
    return given;
}

/* What the spreading left over serves whoever still fits. */
static uint64_t fill_up(struct vpmm_spread *spread, uint64_t room)
{
    uint64_t given = 0;
    for (uint32_t i = 0; i < spread->n_items; i++) {
        struct vpmm_spread_item *item = &spread->items[i];
        if (is_streamed(item) && given + item->n_chunks <= room) {
            item->is_resident = true;
            given += item->n_chunks;
        }
    }
    return given;
}

static void choose_residents(struct vpmm_spread *spread)
{
    keep_outliers(spread);
    uint64_t used = resident_chunks(spread) + ring_wish(spread);
    uint64_t room = used < spread->budget_chunks ? spread->budget_chunks - used : 0;
    for (uint32_t i = 0; i < spread->n_items; i++)
        spread->items[i].position = UINT64_MAX;
    room -= spread_evenly(spread, room);
    (void)fill_up(spread, room);
}

static void make_all_resident(struct vpmm_spread *spread)
{
    for (uint32_t i = 0; i < spread->n_items; i++)
        spread->items[i].is_resident = true;
    spread->ring_chunks = 0;
    spread->resident_chunks = spread->all_chunks;
}

enum vpmm_status vpmm_spread_plan(struct vpmm_spread *spread)
{
    vpmm_spread_need(spread);
    if (spread->budget_chunks < spread->floor_chunks)
        return VPMM_BELOW_FLOOR;
    if (spread->budget_chunks >= spread->all_chunks) {
        make_all_resident(spread);
        return VPMM_OK;
    }
    uint64_t most = spread->budget_chunks - resident_chunks(spread);
    if (ring_wish(spread) > most)
        spread->ring_wish_chunks = most;
    choose_residents(spread);
    uint64_t streamed = streamed_chunks(spread);
    spread->resident_chunks = resident_chunks(spread);
    uint64_t enough = larger(streamed, ring_min(spread));
    uint64_t least = ring_wish(spread) < enough ? ring_wish(spread) : enough;
    spread->ring_chunks =
        ring_choose(streamed, least, spread->budget_chunks - spread->resident_chunks);
    lay(spread, streamed, padding(streamed, spread->ring_chunks));
    if (!spans_fit(spread))
        lay(spread, streamed, 0);
    return VPMM_OK;
}
