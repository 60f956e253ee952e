/* SPDX-License-Identifier: MIT */
/* Handles: the values by which programs name the machine's objects. Must not give a value that
 * programs could follow as a pointer. */
#include "sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Handle values lie where programs rarely map anything, so that following one as a pointer faults.
 */
#define HANDLE_BASE 0x200000000000u
#define HANDLE_STEP 64u

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fputs("sim: out of host memory\n", stderr);
        abort();
    }
    return memory;
}

void *grow(void *array, size_t element_bytes, size_t n, size_t *room)
{
    if (n < *room)
        return array;
    *room = *room == 0 ? 4 : *room * 2;
    void *grown = realloc(array, *room * element_bytes);
    if (grown == NULL) {
        fputs("sim: out of host memory\n", stderr);
        abort();
    }
    return grown;
}

static uint32_t slot_take(struct sim *sim, enum object_kind kind)
{
    struct registry *registry = &sim->registry;
    uint32_t index = registry->first_free[kind];
    if (index != 0) {
        registry->first_free[kind] = registry->slots[index].next_free;
        return index;
    }
    if (registry->n == 0)
        registry->n = 1;
    size_t room = registry->room;
    registry->slots = grow(registry->slots, sizeof *registry->slots, registry->n, &room);
    registry->room = (uint32_t)room;
    return registry->n++;
}

uint64_t object_add(struct sim *sim, enum object_kind kind, void *object)
{
    uint32_t index = slot_take(sim, kind);
    sim->registry.slots[index] = (struct slot){.object = object, .kind = kind, .live = true};
    sim->registry.n_live[kind]++;
    return HANDLE_BASE + (uint64_t)index * HANDLE_STEP;
}

void object_retire(struct sim *sim, uint64_t handle)
{
    struct registry *registry = &sim->registry;
    uint32_t index = (uint32_t)((handle - HANDLE_BASE) / HANDLE_STEP);
    struct slot *slot = &registry->slots[index];
    slot->live = false;
    registry->n_live[slot->kind]--;
    if (sim->config.reuse_handles) {
        slot->next_free = registry->first_free[slot->kind];
        registry->first_free[slot->kind] = index;
    }
}

enum object_life object_find(struct sim *sim, enum object_kind kind, uint64_t handle,
                             void *object_out)
{
    const struct registry *registry = &sim->registry;
    uint64_t index = (handle - HANDLE_BASE) / HANDLE_STEP;
    if (handle <= HANDLE_BASE || handle % HANDLE_STEP != 0 || index >= registry->n)
        return OBJECT_UNKNOWN;
    const struct slot *slot = &registry->slots[index];
    if (slot->kind != kind)
        return OBJECT_UNKNOWN;
    *(void **)object_out = slot->object;
    return slot->live ? OBJECT_LIVE : OBJECT_DEAD;
}
