/* SPDX-License-Identifier: MIT */
#include "shelf.h"

uint32_t roll(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

bool shelf_put(struct shelf *shelf, const struct block *block)
{
    bool is_put = false;
    (void)pthread_mutex_lock(&shelf->lock);
    for (int i = 0; i < SHELF_MAX && !is_put; i++)
        if (!shelf->places[i].address) {
            shelf->places[i] = *block;
            is_put = true;
        }
    (void)pthread_mutex_unlock(&shelf->lock);
    return is_put;
}

bool shelf_take(struct shelf *shelf, uint32_t from, struct block *block_out)
{
    bool is_taken = false;
    (void)pthread_mutex_lock(&shelf->lock);
    for (uint32_t i = 0; i < SHELF_MAX && !is_taken; i++) {
        struct block *place = &shelf->places[(from + i) % SHELF_MAX];
        if (place->address) {
            *block_out = *place;
            place->address = 0;
            is_taken = true;
        }
    }
    (void)pthread_mutex_unlock(&shelf->lock);
    return is_taken;
}
