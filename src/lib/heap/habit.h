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

/* Where a request was served. Whoever reads it while it is written gets a wrong hint. */
struct vpmm_habit {
    vpmm_atomic64 key, address;
};

/* So many are remembered, the latest ones. */
#define VPMM_HABITS ((uint64_t)1 << 17)

/* The habits in the order in which they were learnt. A program that repeats itself asks for them in
 * that order again. So the next one mostly lies behind the last one, where the processor has it at
 * hand. The index finds the others. Its sets fill a cache line each, and have twice as much room as
 * there are habits. */
#define VPMM_HABIT_WAYS 16u
#define VPMM_HABIT_SETS ((uint32_t)(2 * VPMM_HABITS / VPMM_HABIT_WAYS))
struct vpmm_habits {
    _Alignas(64) struct vpmm_habit log[VPMM_HABITS];
    _Alignas(64) vpmm_atomic32 index[VPMM_HABIT_SETS][VPMM_HABIT_WAYS];
    _Alignas(64) vpmm_atomic64 n; /* ever learnt */
};

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

/* What is known of a request's habit. */
struct vpmm_recalled {
    uint64_t key;
    uint64_t address; /* 0: none yet */
    uint64_t place;   /* where the habit lies in the log; VPMM_HABITS: not known, or nowhere */
    uint64_t stamp;   /* what its block adds to the layout */
    bool is_kept;     /* or nothing is remembered, because there are too many lanes */
};

/* So many habits are looked at, from about the last one on: two cache lines. */
#define VPMM_HABIT_WINDOW 8u

/* The next four: any thread, no lock. The index finds the place of a key in the log; VPMM_HABITS:
 * there is none. */
VPMM_NOINLINE uint64_t vpmm_habit_look_up(const struct vpmm_habits *habits, uint64_t key);
/* Learns that a request was served at `address`, of whose habit so much is known. */
VPMM_NOINLINE void vpmm_habit_keep(struct vpmm_habits *habits, const struct vpmm_recalled *recalled,
                                   uint64_t address);

/* Finds the habit of the key in `recalled`. `*last` tells where a round has come to in the log: the
 * place of its last habit. Nobody else uses it meanwhile. */
static VPMM_INLINE void vpmm_habit_find(const struct vpmm_habits *habits,
                                        struct vpmm_recalled *recalled, uint64_t *last)
{
    uint64_t i = *last & ~(uint64_t)3, end = i + VPMM_HABIT_WINDOW, key = recalled->key;
    while (i < end && vpmm_hint_load(&habits->log[i % VPMM_HABITS].key) != key)
        i++;
    recalled->place = i < end ? i % VPMM_HABITS : vpmm_habit_look_up(habits, key);
    if (recalled->place == VPMM_HABITS)
        return;
    *last = recalled->place;
    __builtin_prefetch(&habits->log[(*last + VPMM_HABIT_WINDOW) % VPMM_HABITS]);
    recalled->address = vpmm_hint_load(&habits->log[*last].address);
}

/* The lane itself knew the habit of that key. If it is the next one in the log, the round has come
 * to it. */
static VPMM_INLINE void vpmm_habit_step(const struct vpmm_habits *habits, uint64_t key,
                                        uint64_t *last)
{
    uint64_t next = (*last + 1) % VPMM_HABITS;
    if (vpmm_hint_load(&habits->log[next].key) != key)
        return;
    *last = next;
    __builtin_prefetch(&habits->log[(next + VPMM_HABIT_WINDOW) % VPMM_HABITS]);
}

#endif
