/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "preload/idle.h"

#include "preload/entry.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

enum state {
    ABSENT,
    RESTING,
    WORKING,
    OVER,
};

/* So many looks in the time after which memory is idle: it goes back at most a quarter of it late.
 */
#define LOOKS 4u

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

static void *look_now_and_then(void *self)
{
    struct vpmm_idler *idler = self;
    struct vpmm_quiet quiet = {.looks_min = LOOKS};
    (void)pthread_setname_np(pthread_self(), "vpmm-idle");
    do {
        uint64_t pause_ms = idler->idle_ms / LOOKS;
        sleep_ms(pause_ms ? pause_ms : 1);
        if (!turn(idler, RESTING, WORKING))
            break;
        /* A driver that calls back, calls the original. */
        if (vpmm_enter()) {
            vpmm_router_give_back(idler->router, &quiet);
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
    bool is_ready = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                    pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                    pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    bool is_made = is_ready && pthread_create(&thread, &attributes, look_now_and_then, idler) == 0;
    if (is_ready)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return is_made;
}

bool vpmm_idler_start(struct vpmm_idler *idler, struct vpmm_router *router, uint64_t idle_ms)
{
    idler->router = router;
    idler->idle_ms = idle_ms;
    atomic_store(&idler->state, RESTING);
    bool is_made = create_thread(idler);
    if (!is_made)
        atomic_store(&idler->state, ABSENT);
    return is_made;
}

void vpmm_idler_end(struct vpmm_idler *idler)
{
    for (unsigned n = 0; n < PAUSES_MAX && atomic_load(&idler->state) != ABSENT; n++) {
        if (turn(idler, RESTING, OVER) || atomic_load(&idler->state) == OVER)
            return;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

void vpmm_idler_forget(struct vpmm_idler *idler)
{
    atomic_store(&idler->state, ABSENT);
}
