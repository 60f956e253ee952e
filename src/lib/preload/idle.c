/* SPDX-License-Identifier: MIT */
/* The thread vpmm-idle, which gives memory back while the program does other things. Must not hold
 * up the end of the process for more than half a second. */
#define _GNU_SOURCE
#include "preload/idle.h"

#include "base/clock.h"
#include "preload/entry.h"
#include "preload/neighbour.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum state {
    ABSENT,
    STARTING,
    RESTING,
    WORKING,
    OVER,
};

/* So many looks in the time after which memory is idle: it goes back at most a quarter of it late.
 */
#define LOOKS 4u

/* Between two slices of what decays the program has the driver for itself. */
#define SLICE_PAUSE_MS 1u

#define STACK_BYTES ((size_t)1 << 20)
#define PAUSE_NS 100000
/* Half a second. None of the calls waits for the device. */
#define PAUSES_MAX 5000u

static bool turn(struct vpmm_idler *idler, unsigned from, unsigned to)
{
    return atomic_compare_exchange_strong(&idler->state, &from, to);
}

static void sleep_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&left, NULL);
}

/* What the thread has to do, and in how many milliseconds; NEVER: not at all. */
#define NEVER UINT64_MAX
struct agenda {
    uint64_t idle_ms, decay_ms, slice_ms;
    struct vpmm_quiet quiet;
    bool is_asked;
    struct vpmm_appeal appeal;
};

static uint64_t share(uint64_t ms, unsigned n)
{
    return ms ? (ms >= n ? ms / n : 1) : NEVER;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sleeps for `ms`, or until another process asks. The milliseconds that were slept. */
static uint64_t sleep_or_be_asked(struct vpmm_idler *idler, struct agenda *agenda, uint64_t ms)
{
    uint64_t begin_ms = idler->appeals.is_open ? vpmm_now_ms() : 0;
    agenda->is_asked = false;
    if (!idler->appeals.is_open)
        sleep_ms(ms);
    else
        agenda->is_asked = vpmm_appeals_wait(&idler->appeals, ms, &agenda->appeal);
    return agenda->is_asked ? less(vpmm_now_ms() - begin_ms, ms) : ms;
}

/* Sleeps until the next thing is due. */
static void sleep_until_due(struct vpmm_idler *idler, struct agenda *agenda)
{
    uint64_t ms = less(less(agenda->idle_ms, agenda->decay_ms), agenda->slice_ms);
    uint64_t *const times[] = {&agenda->idle_ms, &agenda->decay_ms, &agenda->slice_ms};
    ms = sleep_or_be_asked(idler, agenda, ms);
    for (unsigned i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] -= *times[i] == NEVER ? 0 : ms;
}

static void do_what_is_due(const struct vpmm_idler *idler, struct agenda *agenda)
{
    bool is_look = agenda->decay_ms == 0;
    if (agenda->is_asked)
        vpmm_appeals_answer(&idler->appeals, &agenda->appeal,
                            vpmm_neighbour_give(idler->router, &agenda->appeal));
    if (agenda->idle_ms == 0) {
        vpmm_router_give_back(idler->router, &agenda->quiet);
        agenda->idle_ms = share(idler->idle_ms, LOOKS);
    }
    if (is_look)
        agenda->decay_ms = share(idler->decay_ms, VPMM_DECAY_SLOTS);
    if (is_look || agenda->slice_ms == 0)
        agenda->slice_ms = vpmm_router_decay(idler->router, is_look) ? SLICE_PAUSE_MS : NEVER;
}

static void *look_now_and_then(void *self)
{
    struct vpmm_idler *idler = self;
    struct agenda agenda = {share(idler->idle_ms, LOOKS),
                            share(idler->decay_ms, VPMM_DECAY_SLOTS),
                            NEVER,
                            {.looks_min = LOOKS},
                            false,
                            {.bytes = 0}};
    (void)pthread_setname_np(pthread_self(), "vpmm-idle");
    do {
        sleep_until_due(idler, &agenda);
        if (!turn(idler, RESTING, WORKING))
            break;
        /* A driver that calls back, calls the original. */
        if (vpmm_enter()) {
            do_what_is_due(idler, &agenda);
            vpmm_leave();
        }
    } while (turn(idler, WORKING, RESTING));
    return NULL;
}

static bool create_thread(struct vpmm_idler *idler)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)sigfillset(&all);
    /* A store into the trace may fault; blocked, that ends the process. */
    (void)sigdelset(&all, SIGBUS);
    bool is_ready = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                    pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                    pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    bool is_made = is_ready && pthread_create(&thread, &attributes, look_now_and_then, idler) == 0;
    if (is_ready)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return is_made;
}

bool vpmm_idler_start(struct vpmm_idler *idler, struct vpmm_router *router,
                      const struct vpmm_config *config)
{
    if (!turn(idler, ABSENT, STARTING))
        return atomic_load(&idler->state) != OVER;
    idler->router = router;
    idler->idle_ms = config->idle_ms;
    idler->decay_ms = config->decay_ms;
    if (idler->decay_ms)
        (void)vpmm_appeals_open(&idler->appeals, geteuid());
    atomic_store(&idler->state, RESTING);
    bool is_made = create_thread(idler);
    if (!is_made)
        vpmm_idler_forget(idler);
    return is_made;
}

void vpmm_idler_end(struct vpmm_idler *idler)
{
    for (unsigned n = 0; n < PAUSES_MAX; n++) {
        if (turn(idler, RESTING, OVER) || turn(idler, ABSENT, OVER) ||
            atomic_load(&idler->state) == OVER)
            return;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

void vpmm_idler_forget(struct vpmm_idler *idler)
{
    vpmm_appeals_close(&idler->appeals);
    atomic_store(&idler->state, ABSENT);
}
