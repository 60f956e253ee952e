/* SPDX-License-Identifier: MIT */
/* The log of habits and its index: the addresses that were given for a layout, a stream and a size.
 * A habit is a hint, so it must not be relied on before the pool has said that the address can be
 * had. */
#include "heap/habit.h"

#include "heap/heap_internal.h"

#define HABITS_BYTES sizeof(struct vpmm_habits)

enum vpmm_status vpmm_habits_init(struct vpmm_heap *heap)
{
    heap->habits = heap->memory->map(heap->memory->self, HABITS_BYTES);
    return heap->habits ? VPMM_OK : VPMM_NO_METADATA;
}

void vpmm_habits_finish(struct vpmm_heap *heap)
{
    if (heap->habits)
        heap->memory->unmap(heap->memory->self, heap->habits, HABITS_BYTES);
}

uint64_t vpmm_habit_layout(const struct vpmm_heap *heap)
{
    uint32_t n_lanes = vpmm_atomic_load(&heap->n_lanes);
    uint64_t layout = vpmm_hint_load(&heap->layout);
    for (uint32_t i = 0; i < n_lanes; i++)
        layout ^= vpmm_hint_load(&heap->used_lanes[i]->layout);
    return layout;
}

/* An entry of the index: some bits of the key, and below them the number of the habit, counted from
 * 1, but for its high bits. They count to twice what the log holds: so an entry whose habit was
 * written over lately is older than all others of its set. 0: none. */
#define NUMBER_BITS 18
#define NUMBER_MASK (((uint32_t)1 << NUMBER_BITS) - 1)
_Static_assert(NUMBER_MASK + 1 == 2 * VPMM_HABITS, "numbers count to twice what the log holds");

static uint32_t check_of(uint64_t key)
{
    return (uint32_t)(key >> 32) & ~NUMBER_MASK;
}

uint64_t vpmm_habit_look_up(const struct vpmm_habits *habits, uint64_t key)
{
    const vpmm_atomic32 *set = habits->index[key % VPMM_HABIT_SETS];
    for (unsigned i = 0; i < VPMM_HABIT_WAYS; i++) {
        uint32_t entry = vpmm_hint_load(&set[i]);
        uint64_t place = (entry - 1) % VPMM_HABITS;
        if ((entry & ~NUMBER_MASK) == check_of(key) &&
            vpmm_hint_load(&habits->log[place].key) == key)
            return place;
    }
    return VPMM_HABITS;
}

/* The oldest entry of the key's set. */
static vpmm_atomic32 *victim_of(struct vpmm_habits *habits, uint64_t key)
{
    vpmm_atomic32 *set = habits->index[key % VPMM_HABIT_SETS], *oldest = set;
    uint32_t n = (uint32_t)vpmm_hint_load(&habits->n), age_most = 0;
    for (unsigned i = 0; i < VPMM_HABIT_WAYS; i++) {
        uint32_t entry = vpmm_hint_load(&set[i]);
        uint32_t age = entry ? (n - entry) & NUMBER_MASK : NUMBER_MASK;
        if (age > age_most) {
            age_most = age;
            oldest = &set[i];
        }
    }
    return oldest;
}

/* The place of a new habit. */
static uint64_t add(struct vpmm_habits *habits, uint64_t key)
{
    vpmm_atomic32 *entry = victim_of(habits, key);
    uint64_t number = vpmm_atomic_add(&habits->n, 1) + 1;
    uint64_t place = (number - 1) % VPMM_HABITS;
    vpmm_hint_store(&habits->log[place].key, key);
    vpmm_hint_store(entry, check_of(key) | ((uint32_t)number & NUMBER_MASK));
    return place;
}

void vpmm_habit_keep(struct vpmm_habits *habits, const struct vpmm_recalled *recalled,
                     uint64_t address)
{
    uint64_t key = recalled->key, place = recalled->place;
    if (place == VPMM_HABITS && recalled->address)
        place = vpmm_habit_look_up(habits, key);
    if (place == VPMM_HABITS || vpmm_hint_load(&habits->log[place].key) != key)
        place = add(habits, key);
    vpmm_hint_store(&habits->log[place].address, address);
}
