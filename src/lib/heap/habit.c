/* SPDX-License-Identifier: MIT */
/* The table of habits: the address that was given for a layout, a stream and a size. A habit is a
 * hint, so it must not be relied on before the pool has said that the address can be had. */
#include "heap/habit.h"

#include "heap/heap_internal.h"

#define HABITS_BYTES (sizeof(struct vpmm_habit) * VPMM_HABIT_WAYS * VPMM_HABIT_SETS)

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

/* While its first set has so many free places, a habit lies there: a look-up then reads one cache
 * line. */
#define ROOMY 4u

/* Where the key's habit lies, or else a free place in its first set, or in that which has more of
 * them. NULL: neither. */
static struct vpmm_habit *place_of(struct vpmm_habit *habits, uint64_t key)
{
    struct vpmm_habit *free_place = NULL;
    unsigned n_free_most = 0;
    for (unsigned choice = 0; choice < VPMM_HABIT_CHOICES; choice++) {
        struct vpmm_habit *set = vpmm_habit_set(habits, key, choice);
        unsigned n_free = 0, first_free = 0;
        for (unsigned i = 0; i < VPMM_HABIT_WAYS; i++) {
            uint64_t word = vpmm_hint_load(&set[i].word);
            if (vpmm_habit_is_of(word, key))
                return &set[i];
            if (!word && !n_free++)
                first_free = i;
        }
        if (n_free > n_free_most && n_free_most < ROOMY) {
            n_free_most = n_free;
            free_place = &set[first_free];
        }
    }
    return free_place;
}

void vpmm_habit_keep(struct vpmm_habit *habits, uint64_t key, uint64_t address)
{
    if (address & ~VPMM_HABIT_ADDRESSES)
        return;
    struct vpmm_habit *place = place_of(habits, key);
    /* A habit that is given up is any of the first set. */
    if (!place)
        place = &vpmm_habit_set(habits, key, 0)[(key >> 61) % VPMM_HABIT_WAYS];
    vpmm_hint_store(&place->word, vpmm_habit_word(key, address));
}
