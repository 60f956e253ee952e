/* SPDX-License-Identifier: MIT */
/* A large set of small numbers, searched level by level. A search runs without a lock and in signal
 * handlers, so it must not wait for the thread that changes the set. */
#include "base/bits.h"

#include "base/step.h"

#include <string.h>

static uint64_t words_for(uint64_t n)
{
    return n / 64 + (n % 64 != 0);
}

enum vpmm_status vpmm_bits_init(struct vpmm_bits *bits, uint64_t n,
                                const struct vpmm_memory *memory)
{
    uint64_t words = 0;
    unsigned n_levels = 0;
    uint64_t offsets[VPMM_BITS_LEVELS];
    uint64_t rest = n;
    do {
        offsets[n_levels++] = words;
        rest = words_for(rest);
        words += rest;
    } while (rest > 1);
    memset(bits, 0, sizeof *bits);
    vpmm_atomic64 *mapped = memory->map(memory->self, words * sizeof *mapped);
    if (!mapped)
        return VPMM_NO_METADATA;
    bits->memory = memory;
    bits->bytes = words * sizeof *mapped;
    bits->n = n;
    bits->n_levels = n_levels;
    for (unsigned i = 0; i < n_levels; i++)
        bits->levels[i] = mapped + offsets[i];
    return VPMM_OK;
}

void vpmm_bits_finish(struct vpmm_bits *bits)
{
    if (bits->memory)
        bits->memory->unmap(bits->memory->self, bits->levels[0], bits->bytes);
    memset(bits, 0, sizeof *bits);
}

static uint64_t word_at(const struct vpmm_bits *bits, unsigned level, uint64_t number)
{
    return vpmm_atomic_load(&bits->levels[level][number / 64]);
}

/* Members first: a search that comes down from above finds what it was promised. */
void vpmm_bits_set(struct vpmm_bits *bits, uint64_t number)
{
    for (unsigned level = 0; level < bits->n_levels; level++) {
        VPMM_STEP();
        uint64_t word = word_at(bits, level, number);
        vpmm_atomic_store(&bits->levels[level][number / 64], word | (uint64_t)1 << number % 64);
        if (word)
            return;
        number /= 64;
    }
}

void vpmm_bits_clear(struct vpmm_bits *bits, uint64_t number)
{
    for (unsigned level = 0; level < bits->n_levels; level++) {
        VPMM_STEP();
        uint64_t word = word_at(bits, level, number) & ~((uint64_t)1 << number % 64);
        vpmm_atomic_store(&bits->levels[level][number / 64], word);
        if (word)
            return;
        number /= 64;
    }
}

/* The bits of word `index` for the numbers from `first` to `last`. */
static uint64_t mask_of(uint64_t index, uint64_t first, uint64_t last)
{
    uint64_t mask = ~(uint64_t)0;
    if (index == first / 64)
        mask &= ~(uint64_t)0 << first % 64;
    if (index == last / 64)
        mask &= ~(uint64_t)0 >> (63 - last % 64);
    return mask;
}

void vpmm_bits_set_span(struct vpmm_bits *bits, uint64_t first, uint64_t n)
{
    uint64_t last = first + n - 1;
    for (unsigned level = 0; level < bits->n_levels; level++) {
        for (uint64_t i = first / 64; i <= last / 64; i++) {
            VPMM_STEP();
            vpmm_atomic64 *word = &bits->levels[level][i];
            vpmm_atomic_store(word, vpmm_atomic_load(word) | mask_of(i, first, last));
        }
        first /= 64;
        last /= 64;
    }
}

/* Only a word that is empty leaves the level above; those strictly inside all are. */
void vpmm_bits_clear_span(struct vpmm_bits *bits, uint64_t first, uint64_t n)
{
    uint64_t last = first + n - 1;
    for (unsigned level = 0; level < bits->n_levels; level++) {
        for (uint64_t i = first / 64; i <= last / 64; i++) {
            VPMM_STEP();
            vpmm_atomic64 *word = &bits->levels[level][i];
            vpmm_atomic_store(word, vpmm_atomic_load(word) & ~mask_of(i, first, last));
        }
        uint64_t low = first / 64 + (word_at(bits, level, first) != 0);
        uint64_t end = last / 64 + (word_at(bits, level, last) == 0);
        if (low >= end)
            return;
        first = low;
        last = end - 1;
    }
}

bool vpmm_bits_has(const struct vpmm_bits *bits, uint64_t number)
{
    return number < bits->n && (word_at(bits, 0, number) >> number % 64 & 1);
}

/* How many bits a level has. */
static uint64_t level_size(const struct vpmm_bits *bits, unsigned level)
{
    uint64_t size = bits->n;
    for (unsigned i = 0; i < level; i++)
        size = words_for(size);
    return size;
}

/* Both searches climb to the next word on the level above when a word has nothing left, and come
 * down into the nearest word that has. A word emptied meanwhile only makes them climb again,
 * further on: they always end. */
uint64_t vpmm_bits_first_from(const struct vpmm_bits *bits, uint64_t number)
{
    unsigned level = 0;
    while (number < level_size(bits, level)) {
        VPMM_STEP();
        uint64_t word = word_at(bits, level, number) & ~(uint64_t)0 << number % 64;
        if (!word) {
            number = number / 64 + 1;
            level++;
            continue;
        }
        number = number / 64 * 64 + (unsigned)__builtin_ctzll(word);
        if (level == 0)
            return number;
        level--;
        number *= 64;
    }
    return bits->n;
}

bool vpmm_bits_last_to(const struct vpmm_bits *bits, uint64_t number, uint64_t *member_out)
{
    unsigned level = 0;
    for (;;) {
        VPMM_STEP();
        uint64_t word = word_at(bits, level, number) & ~(uint64_t)0 >> (63 - number % 64);
        if (word) {
            number = number / 64 * 64 + 63 - (unsigned)__builtin_clzll(word);
            if (level == 0) {
                *member_out = number;
                return true;
            }
            level--;
            number = number * 64 + 63;
            continue;
        }
        if (number < 64)
            return false;
        number = number / 64 - 1;
        level++;
    }
}
