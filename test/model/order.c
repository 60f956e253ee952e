/* SPDX-License-Identifier: MIT */
#include "reference.h"

#define WORDS (OPERATIONS_MAX / 64)

void set_add(struct set *set, const struct set *other)
{
    for (unsigned i = 0; i < WORDS; i++)
        set->words[i] |= other->words[i];
}

bool set_has_all(const struct set *set, const struct set *part)
{
    uint64_t missing = 0;
    for (unsigned i = 0; i < WORDS; i++)
        missing |= part->words[i] & ~set->words[i];
    return missing == 0;
}

struct set order_own(const struct reference *reference, unsigned stream)
{
    struct set own = reference->done;
    set_add(&own, &reference->streams[stream].tail);
    return own;
}

struct set order_before(const struct reference *reference, unsigned number)
{
    const struct stream *stream = &reference->streams[number];
    struct set before = order_own(reference, number);
    if (stream->is_blocking)
        set_add(&before, &reference->streams[stream->context].tail);
    for (unsigned i = 0; stream->is_legacy && i < STREAMS_MAX; i++) {
        const struct stream *other = &reference->streams[i];
        if (other->is_alive && other->is_blocking && other->context == stream->context)
            set_add(&before, &other->tail);
    }
    return before;
}

bool order_has_room(const struct reference *reference)
{
    return reference->n_operations < OPERATIONS_MAX;
}

struct operation *order_queue(struct reference *reference, unsigned stream,
                              const struct set *before)
{
    unsigned number = reference->n_operations++;
    struct operation *operation = &reference->operations[number];
    operation->before = before ? *before : order_before(reference, stream);
    operation->maybe = order_before(reference, stream);
    set_add(&operation->maybe, &operation->before);
    operation->context = reference->streams[stream].context;
    operation->waits_for = operation->sets = NOBODY;
    operation->is_clear = order_is_clear(reference, &operation->maybe);
    operation->is_moot = operation->is_unsure = false;
    operation->before.words[number / 64] |= (uint64_t)1 << number % 64;
    reference->streams[stream].tail = operation->before;
    return operation;
}

bool order_is_clear(const struct reference *reference, const struct set *set)
{
    for (unsigned i = 0; i < WORDS; i++)
        for (uint64_t left = set->words[i] & ~reference->done.words[i]; left; left &= left - 1) {
            unsigned number = i * 64 + (unsigned)__builtin_ctzll(left);
            if (!reference->operations[number].is_clear)
                return false;
        }
    return true;
}

bool order_is_held(const struct reference *reference, const struct set *set)
{
    for (unsigned i = 0; i < reference->n_operations; i++) {
        unsigned flag = reference->operations[i].waits_for;
        bool is_in = set->words[i / 64] >> i % 64 & 1;
        if (is_in && flag != NOBODY && !reference->flag_is_taken[flag])
            return true;
    }
    return false;
}

bool order_is_moot(const struct reference *reference, const struct set *set)
{
    for (unsigned i = 0; i < reference->n_operations; i++) {
        const struct operation *operation = &reference->operations[i];
        bool is_in = set->words[i / 64] >> i % 64 & 1;
        if (is_in && operation->is_moot && !operation->is_clear)
            return true;
    }
    return false;
}

bool order_is_unsure(const struct reference *reference, const struct set *set)
{
    for (unsigned i = 0; i < reference->n_operations; i++) {
        const struct operation *operation = &reference->operations[i];
        if (set->words[i / 64] >> i % 64 & 1 && operation->is_unsure && !operation->is_clear)
            return true;
    }
    return false;
}

static bool becomes_clear(const struct reference *reference, unsigned number)
{
    const struct operation *operation = &reference->operations[number];
    struct set others = operation->maybe;
    others.words[number / 64] &= ~((uint64_t)1 << number % 64);
    return !operation->is_clear &&
           (operation->waits_for == NOBODY || reference->flag_is_set[operation->waits_for]) &&
           order_is_clear(reference, &others);
}

void order_settle(struct reference *reference)
{
    bool learnt = true;
    while (learnt) {
        learnt = false;
        for (unsigned i = 0; i < reference->n_operations; i++) {
            struct operation *operation = &reference->operations[i];
            if (becomes_clear(reference, i)) {
                operation->is_clear = true;
                learnt = true;
            }
            if (operation->is_clear && operation->sets != NOBODY &&
                !reference->flag_is_set[operation->sets]) {
                reference->flag_is_set[operation->sets] = true;
                learnt = true;
            }
        }
    }
}

struct set order_of_context(const struct reference *reference, unsigned context)
{
    struct set of = {{0}};
    for (unsigned i = 0; i < reference->n_operations; i++)
        if (reference->operations[i].context == context)
            of.words[i / 64] |= (uint64_t)1 << i % 64;
    return of;
}

bool host_may_wait(const struct reference *reference, unsigned thread, const struct set *set)
{
    return order_is_clear(reference, set) ||
           (thread != 0 && !order_is_moot(reference, set) && !order_is_unsure(reference, set));
}

void host_wait(struct reference *reference, unsigned number, const struct set *set)
{
    struct thread *thread = &reference->threads[number];
    thread->is_away = thread->proves = true;
    thread->awaited = *set;
}

void host_return(struct reference *reference)
{
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        struct thread *thread = &reference->threads[i];
        thread->is_freeing = thread->is_freeing && !order_is_clear(reference, &thread->awaited);
    }
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        struct thread *thread = &reference->threads[i];
        if (!thread->is_away || !order_is_clear(reference, &thread->awaited) ||
            (thread->then.n && !memory_finish(reference, &thread->then)))
            continue;
        /* Nobody has seen the work complete before the thread is back. */
        if (thread->proves)
            set_add(&reference->done, &thread->awaited);
        thread->awaited = (struct set){{0}};
        thread->is_away = false;
        thread->then.n = 0;
    }
}
