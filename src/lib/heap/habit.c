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

/* In place of the one that the key had, or of none, or of any. */
void vpmm_habit_keep(struct vpmm_habit *habits, uint64_t key, uint64_t address)
{
    struct vpmm_habit *set = vpmm_habit_set(habits, key);
    struct vpmm_habit *place = &set[(key >> 60) % VPMM_HABIT_WAYS];
    for (unsigned i = VPMM_HABIT_WAYS; i-- > 0;) {
        uint64_t other = vpmm_hint_load(&set[i].address);
        if (!other)
            place = &set[i];
        if (vpmm_habit_is_of(&set[i], key, other)) {
            place = &set[i];
            break;
        }
    }
    vpmm_hint_store(&place->address, address);
    vpmm_hint_store(&place->check, key ^ address);
}
