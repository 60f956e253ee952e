/* SPDX-License-Identifier: MIT */
#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOM_FIRST 1024

static struct number *place_of(const struct numbers *numbers, uint64_t key)
{
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20);
    while (numbers->entries[i & (numbers->room - 1)].is_used &&
           numbers->entries[i & (numbers->room - 1)].key != key)
        i++;
    return &numbers->entries[i & (numbers->room - 1)];
}

static void widen(struct numbers *numbers)
{
    struct numbers wider = {.room = numbers->room ? 2 * numbers->room : ROOM_FIRST,
                            .n = numbers->n};
    wider.entries = calloc(wider.room, sizeof *wider.entries);
    if (!wider.entries) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < numbers->room; i++)
        if (numbers->entries[i].is_used)
            *place_of(&wider, numbers->entries[i].key) = numbers->entries[i];
    free(numbers->entries);
    *numbers = wider;
}

uint32_t *numbers_at(struct numbers *numbers, uint64_t key)
{
    if (2 * numbers->n >= numbers->room)
        widen(numbers);
    struct number *number = place_of(numbers, key);
    if (!number->is_used) {
        *number = (struct number){.key = key, .value = NUMBER_NONE, .is_used = 1};
        numbers->n++;
    }
    return &number->value;
}

void numbers_finish(struct numbers *numbers)
{
    free(numbers->entries);
    *numbers = (struct numbers){0};
}
