/* SPDX-License-Identifier: MIT */
/* A table from 64-bit keys to small numbers. A place in it must not be used after the next look-up,
 * which may move the table. */
#include "replay/numbers.h"

#include <stdbool.h>
#include <stdlib.h>

#define ROOM_FIRST 1024

static struct vpmm_number *place_of(const struct vpmm_numbers *numbers, uint64_t key)
{
    uint64_t mixed = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(mixed ^ mixed >> 32);
    while (numbers->entries[i & (numbers->room - 1)].is_used &&
           numbers->entries[i & (numbers->room - 1)].key != key)
        i++;
    return &numbers->entries[i & (numbers->room - 1)];
}

static bool widen(struct vpmm_numbers *numbers)
{
    struct vpmm_numbers wider = {.room = numbers->room ? 2 * numbers->room : ROOM_FIRST,
                                 .n = numbers->n};
    wider.entries = calloc(wider.room, sizeof *wider.entries);
    if (!wider.entries)
        return false;
    for (size_t i = 0; i < numbers->room; i++)
        if (numbers->entries[i].is_used)
            *place_of(&wider, numbers->entries[i].key) = numbers->entries[i];
    free(numbers->entries);
    *numbers = wider;
    return true;
}

uint32_t *vpmm_numbers_at(struct vpmm_numbers *numbers, uint64_t key)
{
    if (2 * numbers->n >= numbers->room && !widen(numbers))
        return NULL;
    struct vpmm_number *number = place_of(numbers, key);
    if (!number->is_used) {
        *number = (struct vpmm_number){.key = key, .value = VPMM_NUMBER_NONE, .is_used = 1};
        numbers->n++;
    }
    return &number->value;
}

void vpmm_numbers_finish(struct vpmm_numbers *numbers)
{
    free(numbers->entries);
    *numbers = (struct vpmm_numbers){0};
}
