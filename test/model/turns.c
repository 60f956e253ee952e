/* SPDX-License-Identifier: MIT */
/* Whose turn it is: of a program's threads one runs at a time, so that a run is always the same. */
#define _GNU_SOURCE
#include "execute.h"

#include <time.h>

/* Rests of one step: more than any wait of the library takes. */
#define RESTS_MAX 20000

static unsigned patience_ms; /* 0: one thread runs at a time */
static struct run *program;  /* of this process */
static unsigned n_rests;
static _Thread_local struct worker *self; /* NULL: the first thread */

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore))
        continue;
}

static void *work(void *argument)
{
    self = argument;
    for (;;) {
        wait_for(&self->go);
        if (self->ends)
            return NULL;
        self->answer = act(&self->turn);
        self->is_acting = false;
        sem_post(&self->rests);
    }
}

void turns_be_real(unsigned ms)
{
    patience_ms = ms;
}

void turns_start_thread(struct run *run, unsigned number)
{
    struct worker *worker = &run->workers[number];
    *worker = (struct worker){.turn.run = run};
    sem_init(&worker->go, 0, 0);
    sem_init(&worker->rests, 0, 0);
    if (pthread_create(&worker->thread, NULL, work, worker))
        fail(run->number, "THREAD", "no thread");
}

void turns_end_thread(struct run *run, unsigned number)
{
    struct worker *worker = &run->workers[number];
    worker->ends = true;
    sem_post(&worker->go);
    pthread_join(worker->thread, NULL);
}

static void start_clock(struct timespec *until, unsigned ms)
{
    clock_gettime(CLOCK_REALTIME, until);
    until->tv_nsec += (long)ms * 1000000;
    until->tv_sec += until->tv_nsec / 1000000000;
    until->tv_nsec %= 1000000000;
}

/* Goes on with the worker until it rests; in earnest a call that may stay away gets only so long.
 */
static void run_worker(struct worker *worker)
{
    worker->is_running = true;
    sem_post(&worker->go);
    if (!patience_ms || worker->is_due) {
        wait_for(&worker->rests);
        worker->is_running = false;
        return;
    }
    struct timespec until;
    start_clock(&until, patience_ms);
    worker->is_running = sem_timedwait(&worker->rests, &until) != 0;
}

bool turns_make(struct turn *turn, CUresult *answer_out)
{
    struct run *run = turn->run;
    unsigned number = turn->step->thread;
    program = run;
    n_rests = 0;
    if (number == 0) {
        *answer_out = act(turn);
        return true;
    }
    struct worker *worker = &run->workers[number];
    worker->step = *turn->step;
    worker->turn = *turn;
    worker->turn.step = &worker->step;
    worker->is_acting = true;
    worker->is_due = !run->reference.threads[number].is_away;
    run_worker(worker);
    *answer_out = worker->answer;
    return !worker->is_running && !worker->is_acting;
}

CUresult turns_finish(struct run *run, unsigned number)
{
    struct worker *worker = &run->workers[number];
    n_rests = 0;
    worker->is_due = true;
    if (worker->is_running) {
        wait_for(&worker->rests);
        worker->is_running = false;
    }
    while (worker->is_acting)
        run_worker(worker);
    return worker->answer;
}

bool turns_stand_still(void)
{
    return self && !self->is_due;
}

bool turns_rest(void)
{
    if (turns_stand_still()) {
        struct worker *worker = self;
        sem_post(&worker->rests);
        wait_for(&worker->go);
        return true;
    }
    for (unsigned i = 1; program && i < THREADS_MAX; i++) {
        struct worker *worker = &program->workers[i];
        if (worker->is_acting && !worker->is_running)
            run_worker(worker);
    }
    return ++n_rests < RESTS_MAX;
}
