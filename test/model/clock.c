/* SPDX-License-Identifier: MIT */
/* Time and waiting as the library and the simulated device of this process see them: time moves
 * when somebody looks at it or sleeps, so that a wait that never ends is known at once, and a run
 * of one program is always the same. */
#define _GNU_SOURCE
#include "execute.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 20000
#define SLEEP_NS 20000000
#define SLEEPS_OF_A_DRAIN 8
#define OVERRIDE __attribute__((visibility("default")))

static const struct api *device; /* NULL: real time */
static uint64_t now_ns;
static unsigned n_sleeps;
static struct chance chance;
static _Thread_local uint64_t still_ns; /* a thread's time while it stands still */

void clock_be_virtual(const struct api *api, uint64_t seed)
{
    chance_start(&chance, seed);
    now_ns = 1000000000;
    device = api;
}

static void rest(void)
{
    if (!turns_rest())
        fail(0, "HANG", "a thread waits for ever for another one");
}

OVERRIDE int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!device)
        return (int)syscall(SYS_clock_gettime, clock, time);
    if (!turns_stand_still()) {
        now_ns += LOOK_NS;
        still_ns = 0;
    } else if (!still_ns) {
        still_ns = now_ns;
    }
    uint64_t ns = still_ns ? still_ns : now_ns;
    *time =
        (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

OVERRIDE int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (!device)
        return (int)syscall(SYS_nanosleep, wanted, left);
    rest();
    if (turns_stand_still())
        return 0;
    now_ns += SLEEP_NS;
    if (++n_sleeps % SLEEPS_OF_A_DRAIN == 0)
        (void)device->vpmm_sim_drain();
    for (uint64_t i = chance_below(&chance, 4); i > 0; i--)
        (void)device->vpmm_sim_step();
    return 0;
}

static void rest_without(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
    rest();
    pthread_mutex_lock(mutex);
}

OVERRIDE int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                    const struct timespec *until)
{
    if (!device) {
        int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
        void *code = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
        memcpy(&real, &code, sizeof code);
        return real(condition, mutex, until);
    }
    rest_without(mutex);
    return ETIMEDOUT;
}

OVERRIDE int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    if (!device) {
        int (*real)(pthread_cond_t *, pthread_mutex_t *);
        void *code = dlsym(RTLD_NEXT, "pthread_cond_wait");
        memcpy(&real, &code, sizeof code);
        return real(condition, mutex);
    }
    rest_without(mutex);
    return 0;
}
