/* SPDX-License-Identifier: MIT */
/* The *habits* of a program: at which address a stream's request of some size was served when the
 * same blocks, asked for in the same order, were live on the device. A program that repeats itself
 * is served there again, so that it meets the same choices again, and after one round has nothing
 * to create or to move; and as what is live then lies where it lay before, no more is held than
 * before. A habit is a hint: whether the address can be had now, the pool says. Private to this
 * folder. */
#ifndef VPMM_HEAP_HABIT_H
#define VPMM_HEAP_HABIT_H

#include "base/atomic.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct vpmm_heap;

/* One word: the address shifted up, and below it the highest bits of the key. 0: none. */
struct vpmm_habit {
    vpmm_atomic64 word;
};

/* Below 2 to the 56, and a multiple of 64 KiB, as all of the driver's are. Others are not kept. */
#define VPMM_HABIT_ADDRESSES UINT64_C(0x00ffffffffff0000)
#define VPMM_HABIT_CHECK_BITS 24

/* A set fills a cache line. A habit has two sets to lie in: where one of a program's round has no
 * room, all that follow it in the round are lost with it, and among thousands of sets some are
 * always crowded. There is room for up to 131,072. */
#define VPMM_HABIT_WAYS 8u
#define VPMM_HABIT_SETS 16384u
#define VPMM_HABIT_CHOICES 2u

/* NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_habits_init(struct vpmm_heap *heap);
void vpmm_habits_finish(struct vpmm_heap *heap);

/* So many lanes at most, those of four streams and of a context, are summed up by a request; where
 * there are more, it asks for no habit and leaves none. */
#define VPMM_HABIT_LANES 5u

/* What a live block adds to the device's *layout*, the exclusive or of all of them: of the key of
 * its request, so that it is the same wherever the block lies. Each lane keeps what went through
 * it, the heap the rest. Slabs add nothing: they lie apart. */
static inline uint64_t vpmm_habit_stamp(uint64_t key)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32;
}

/* `stream_id` 0: cudaMalloc. */
static inline uint64_t vpmm_habit_key(uint64_t layout, uint64_t stream_id, uint64_t pages)
{
    uint64_t mixed = layout ^ (stream_id * UINT64_C(0xd6e8feb86659fd93) + pages);
    mixed *= UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 32;
}

/* The device's layout; any thread, no lock. */
uint64_t vpmm_habit_layout(const struct vpmm_heap *heap);

/* `choice`: below VPMM_HABIT_CHOICES. */
static inline struct vpmm_habit *vpmm_habit_set(struct vpmm_habit *habits, uint64_t key,
                                                unsigned choice)
{
    uint64_t set = (key >> 24 * choice) % VPMM_HABIT_SETS;
    return &habits[set * VPMM_HABIT_WAYS];
}

/* The word of a habit at `address`, one of VPMM_HABIT_ADDRESSES. */
static inline uint64_t vpmm_habit_word(uint64_t key, uint64_t address)
{
    return address << (VPMM_HABIT_CHECK_BITS - 16) | key >> (64 - VPMM_HABIT_CHECK_BITS);
}

static inline uint64_t vpmm_habit_address(uint64_t word)
{
    return word >> VPMM_HABIT_CHECK_BITS << 16;
}

/* Two keys of one set whose highest bits are the same are taken for one. That happens once in
 * millions of look-ups, and costs no more than a wrong hint. */
static inline bool vpmm_habit_is_of(uint64_t word, uint64_t key)
{
    uint64_t check = word & ((UINT64_C(1) << VPMM_HABIT_CHECK_BITS) - 1);
    return word && check == key >> (64 - VPMM_HABIT_CHECK_BITS);
}

/* The next two: any thread, no lock. 0: there is none. */
static inline uint64_t vpmm_habit_find(struct vpmm_habit *habits, uint64_t key)
{
    for (unsigned choice = 0; choice < VPMM_HABIT_CHOICES; choice++) {
        const struct vpmm_habit *set = vpmm_habit_set(habits, key, choice);
        for (unsigned i = 0; i < VPMM_HABIT_WAYS; i++) {
            uint64_t word = vpmm_hint_load(&set[i].word);
            if (vpmm_habit_is_of(word, key))
                return vpmm_habit_address(word);
        }
    }
    return 0;
}

void vpmm_habit_keep(struct vpmm_habit *habits, uint64_t key, uint64_t address);

/* The habit of a request. */
struct vpmm_recalled {
    uint64_t key;
    uint64_t address; /* 0: none yet */
    uint64_t stamp;   /* what its block adds to the layout */
    bool is_kept;     /* or nothing is remembered, because there are too many lanes */
};

#endif
