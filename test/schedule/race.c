/* SPDX-License-Identifier: MIT */
#include "race.h"

#include <string.h>

#define PLACES 16384u /* a power of two */
#define NEVER (-1)
#define COUNTERS 16u

/* For each thread the last of its steps that is known to come before. */
struct clock {
    int last[SCHEDULE_THREADS];
};

/* What this run did to one object. */
struct place {
    const volatile void *object;
    unsigned run;
    int writer, written; /* the last write, or taking of a lock: by which thread, which step */
    /* The last reads since, and additions: each kind commutes with itself. */
    int shared[2][SCHEDULE_THREADS];
    struct clock before_shared[2]; /* what came before them */
    struct clock writes;           /* what came before the write; for a lock, before it was given */
};

static struct range {
    uintptr_t start;
    size_t bytes;
} counters[COUNTERS];
static unsigned n_counters;

static struct place places[PLACES];
static struct clock clocks[SCHEDULE_THREADS];
static struct event {
    int thread;
    struct clock clock;
} events[SCHEDULE_STEPS + 1];
static int steps[SCHEDULE_THREADS][SCHEDULE_STEPS + 1]; /* of each thread, in order */
static int n_steps[SCHEDULE_THREADS];
static unsigned run;
static unsigned n_places;

bool race_is_counter(const volatile void *object)
{
    for (unsigned i = 0; i < n_counters; i++)
        if ((uintptr_t)object - counters[i].start < counters[i].bytes)
            return true;
    return false;
}

void race_forget_counters(void)
{
    n_counters = 0;
}

void schedule_counters(const volatile void *start, size_t bytes)
{
    expect(n_counters < COUNTERS);
    counters[n_counters++] = (struct range){(uintptr_t)start, bytes};
}

void race_reset(void)
{
    run++;
    n_places = 0;
    memset(clocks, 0xff, sizeof clocks);
    memset(n_steps, 0, sizeof n_steps);
}

static struct place *place_of(const volatile void *object)
{
    uintptr_t hash = (uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15);
    unsigned at = (unsigned)(hash >> 40) & (PLACES - 1);
    while (places[at].run == run && places[at].object != object)
        at = (at + 1) & (PLACES - 1);
    struct place *place = &places[at];
    if (place->run != run) {
        if (++n_places > PLACES / 2)
            schedule_fail("too many objects");
        memset(place, 0xff, sizeof *place);
        place->object = object;
        place->run = run;
    }
    return place;
}

static void join(struct clock *clock, const struct clock *other)
{
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        if (other->last[i] > clock->last[i])
            clock->last[i] = other->last[i];
}

/* Whether the touch comes after those of the shared kind that were made before. */
static bool follows(enum touch_kind kind, enum touch_kind shared)
{
    return kind == TOUCH_WRITES || (kind <= TOUCH_ADDS && kind != shared);
}

static void join_place(struct clock *clock, const struct touch *touch)
{
    const struct place *place = place_of(touch->object);
    join(clock, &place->writes);
    for (unsigned kind = TOUCH_READS; kind <= TOUCH_ADDS; kind++)
        if (follows(touch->kind, kind))
            join(clock, &place->before_shared[kind]);
}

void race_step(int thread, int at, const struct step *step)
{
    struct clock *clock = &clocks[thread];
    for (unsigned i = 0; i < step->n_touches; i++)
        join_place(clock, &step->touches[i]);
    clock->last[thread] = at;
    events[at] = (struct event){thread, *clock};
    steps[thread][n_steps[thread]++] = at;
    for (unsigned i = 0; i < step->n_touches; i++) {
        enum touch_kind kind = step->touches[i].kind;
        struct place *place = place_of(step->touches[i].object);
        if (kind <= TOUCH_ADDS) {
            place->shared[kind][thread] = at;
            join(&place->before_shared[kind], clock);
            continue;
        }
        if (kind == TOUCH_WRITES)
            memset(place->shared, 0xff, sizeof place->shared);
        if (kind != TOUCH_TAKES)
            place->writes = *clock;
        if (kind != TOUCH_GIVES) {
            place->writer = thread;
            place->written = at;
        }
    }
}

/* ---- races ---- */

/* What comes before the step that the thread is about to do. Whoever held its lock before it need
 * not have. */
static struct clock clock_of_next(int thread, const struct step *step)
{
    struct clock clock = clocks[thread];
    for (unsigned i = 0; i < step->n_touches; i++)
        if (step->touches[i].kind <= TOUCH_WRITES)
            join_place(&clock, &step->touches[i]);
    return clock;
}

static bool is_before(int at, int later)
{
    return events[later].clock.last[events[at].thread] >= at;
}

/* Adds the step `at` of `other` to the races, unless it comes before all that the thread does. */
static void add(struct races *races, int thread, int other, int at)
{
    if (at == NEVER || other == thread || at <= clocks[thread].last[other])
        return;
    for (unsigned i = 0; i < races->n; i++)
        if (races->at[i] == at)
            return;
    races->at[races->n++] = at;
}

/* What comes before another of the races is none: something lies between. */
static void drop_indirect(struct races *races)
{
    struct races all = *races;
    races->n = 0;
    for (unsigned i = 0; i < all.n; i++) {
        bool is_direct = true;
        for (unsigned j = 0; j < all.n; j++)
            is_direct = is_direct && (i == j || !is_before(all.at[i], all.at[j]));
        if (is_direct)
            races->at[races->n++] = all.at[i];
    }
}

void race_find(int thread, const struct step *step, struct races *races_out)
{
    races_out->n = 0;
    for (unsigned i = 0; i < step->n_touches; i++) {
        const struct touch *touch = &step->touches[i];
        if (touch->kind == TOUCH_GIVES)
            continue;
        const struct place *place = place_of(touch->object);
        add(races_out, thread, place->writer, place->written);
        for (unsigned kind = TOUCH_READS; kind <= TOUCH_ADDS; kind++)
            for (int other = 0; other < SCHEDULE_THREADS && follows(touch->kind, kind); other++)
                add(races_out, thread, other, place->shared[kind][other]);
    }
    drop_indirect(races_out);
}

/* The first step of the thread after `at`; NEVER: none. */
static int first_after(int thread, int at)
{
    int low = 0;
    int high = n_steps[thread];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (steps[thread][middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low < n_steps[thread] ? steps[thread][low] : NEVER;
}

/* Whether nothing from `at` on, other than `at` itself and the thread's own, comes before. */
static bool is_first(const struct clock *clock, int thread, int at)
{
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        if (i != thread && clock->last[i] > at)
            return false;
    return true;
}

unsigned race_leads(int at, int thread, const struct step *step)
{
    unsigned leads = 0;
    for (int i = 0; i < SCHEDULE_THREADS; i++) {
        int first = first_after(i, at);
        struct clock next =
            first == NEVER && i == thread ? clock_of_next(thread, step) : (struct clock){{0}};
        if (i == events[at].thread || (first == NEVER && i != thread))
            continue;
        if (first == NEVER ? is_first(&next, i, at)
                           : is_first(&events[first].clock, i, at) && !is_before(at, first))
            leads |= 1u << i;
    }
    return leads;
}

bool race_depends(const struct step *a, const struct step *b)
{
    for (unsigned i = 0; i < a->n_touches; i++)
        for (unsigned j = 0; j < b->n_touches; j++) {
            const struct touch *x = &a->touches[i];
            const struct touch *y = &b->touches[j];
            bool commutes = x->kind == y->kind && x->kind <= TOUCH_ADDS;
            if (x->object == y->object && !commutes)
                return true;
        }
    return false;
}
