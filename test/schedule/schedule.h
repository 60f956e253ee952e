/* SPDX-License-Identifier: MIT */
/* What a case is, and what it is made of. Its threads run the library's own code as fibers of one
 * thread; each atomic access, lock operation and driver call is a step, and the explorer runs the
 * threads again and again until every order of their steps has been seen, one representative for
 * all orders that differ only in steps that touch nothing in common.
 *
 * All that a case reads and writes lies in room from schedule_room or schedule_memory, which is
 * as `prepare` left it whenever the threads start. */
#ifndef VPMM_TEST_SCHEDULE_SCHEDULE_H
#define VPMM_TEST_SCHEDULE_SCHEDULE_H

#include "base/lock.h"
#include "base/memory.h"
#include "points.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_THREADS 4
#define SCHEDULE_STEPS 16384 /* of all threads, at most */

struct schedule_case {
    const char *name;
    void (*prepare)(void);
    void (*threads[SCHEDULE_THREADS])(void); /* up to the first NULL */
    void (*check)(void);                     /* after all of them; may be NULL */
};

/* A case of the group that the file calls GROUP. */
#define SCHEDULE_TEST(name, ...)                                                                   \
    {                                                                                              \
        GROUP "/" #name, __VA_ARGS__                                                               \
    }

/* The running thread's number from 0; SCHEDULE_THREADS in `prepare` and `check`. */
int schedule_thread(void);

/* Zeroed; until the end of the case. */
void *schedule_room(size_t bytes);
/* The same as the library wants it. */
extern const struct vpmm_memory schedule_memory;
/* Mappings of schedule_memory that were not given back. */
uint64_t schedule_maps(void);

/* Ends the program with the case, the text and the schedule that leads there. */
_Noreturn void schedule_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            schedule_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition);                  \
    } while (0)

/* ---- steps that are no atomic access ---- */

struct touch {
    const volatile void *object;
    enum touch_kind kind;
};

#define STEP_TOUCHES 16

/* What a thread is about to do. Two steps that touch one object commute if both only read it, or
 * both only add to it and it is a counter. */
struct step {
    const char *what;
    bool (*may)(const void *argument); /* whether it can be done now; NULL: always */
    const void *argument;
    unsigned n_touches;
    struct touch touches[STEP_TOUCHES];
};

static inline void step_touch(struct step *step, const volatile void *object, enum touch_kind kind)
{
    step->touches[step->n_touches++] = (struct touch){object, kind};
}

/* For `prepare`: what is added to a word in this range is never asked what it was before. */
void schedule_counters(const volatile void *start, size_t bytes);

/* The ranks of the locks that the running thread holds, one bit each. */
unsigned *schedule_ranks(void);
/* How many latches of each rank it holds. */
unsigned *schedule_latches(void);

/* Returns when the explorer lets the thread do it. */
void schedule_step(const struct step *step);

#endif
