/* SPDX-License-Identifier: MIT */
/* Hands on to other threads what ended threads left of their chunks. Must not lock, and must not
 * give one such place to two threads. */
#define _GNU_SOURCE
#include "recorder/places.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So many places are looked at for one: what ended threads leave is then a small share of what the
 * living have, whatever their number. */
#define LOOKS 16

/* The word of a place: the thread, its chunk, and how often the place has changed hands, so that
 * two that see the same ended thread there do not both get it. */
#define CHUNK_SHIFT 32
#define TURN_SHIFT 56
#define CHUNK_MASK (((uint64_t)1 << (TURN_SHIFT - CHUNK_SHIFT)) - 1)

static uint64_t word_of(uint32_t thread, uint64_t chunk, uint64_t turn)
{
    return turn << TURN_SHIFT | (chunk & CHUNK_MASK) << CHUNK_SHIFT | thread;
}

/* A number that was given anew to the calling thread is no other one's. */
static bool has_ended(uint32_t thread, uint32_t own)
{
    return thread == own || (syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH);
}

bool vpmm_trace_places_inherit(struct vpmm_trace_places *places, uint32_t thread,
                               uint32_t *place_out, uint64_t *chunk_out)
{
    uint32_t n = vpmm_atomic_load(&places->n);
    if (n > VPMM_TRACE_PLACES)
        n = VPMM_TRACE_PLACES;
    for (uint32_t i = 0; i < n && i < LOOKS; i++) {
        uint32_t place = vpmm_atomic_add(&places->hand, 1) % n;
        uint64_t word = vpmm_atomic_load(&places->words[place]);
        uint64_t chunk = word >> CHUNK_SHIFT & CHUNK_MASK;
        if (word == 0 || !has_ended((uint32_t)word, thread) ||
            !vpmm_atomic_swap_if(&places->words[place], &word,
                                 word_of(thread, chunk, (word >> TURN_SHIFT) + 1)))
            continue;
        *place_out = place;
        *chunk_out = chunk;
        return true;
    }
    return false;
}

uint32_t vpmm_trace_places_take(struct vpmm_trace_places *places)
{
    uint32_t n = vpmm_atomic_load(&places->n);
    bool is_taken = false;
    while (n < VPMM_TRACE_PLACES && !is_taken)
        is_taken = vpmm_atomic_swap_if(&places->n, &n, n + 1);
    return n;
}

void vpmm_trace_places_tell(struct vpmm_trace_places *places, uint32_t place, uint32_t thread,
                            uint64_t chunk)
{
    if (place == VPMM_TRACE_PLACES)
        return;
    uint64_t turn = vpmm_atomic_load(&places->words[place]) >> TURN_SHIFT;
    vpmm_atomic_store(&places->words[place], word_of(thread, chunk, turn));
}
