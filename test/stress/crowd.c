/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "crowd.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELPERS 4
#define WORKERS (THREADS - HELPERS)

pthread_t thread_begin(void *(*run)(void *), uintptr_t number)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)number) != 0)
        abort();
    return thread;
}

void thread_join(pthread_t thread)
{
    if (pthread_join(thread, NULL) != 0)
        abort();
}

static uint64_t any_size(struct actor *actor)
{
    switch (roll(&actor->dice, 16)) {
    case 0:
        return 1 + roll(&actor->dice, PAGE_BYTES);
    case 1:
        return (12 + roll(&actor->dice, 12)) * PAGE_BYTES;
    default:
        return (1 + roll(&actor->dice, 6)) * PAGE_BYTES - roll(&actor->dice, 2) * 13;
    }
}

static void put_or_free(struct actor *actor, struct block *block)
{
    if (roll(&actor->dice, 4) == 0 || !shelf_put(&program.shelf, block))
        block_free(actor, block, roll(&actor->dice, 3) ? any_stream(actor) : NULL);
}

static void make_one(struct actor *actor)
{
    struct block block;
    CUstream stream = roll(&actor->dice, 3) ? any_stream(actor) : NULL;
    if (!block_make(actor, any_size(actor), stream, &block))
        return;
    block_use(actor, &block, roll(&actor->dice, 2) && stream ? stream : any_stream(actor));
    if (roll(&actor->dice, 4) == 0)
        block_ask(actor, &block);
    put_or_free(actor, &block);
}

static void take_one(struct actor *actor)
{
    struct block block;
    if (!shelf_take(&program.shelf, roll(&actor->dice, SHELF_MAX), &block))
        return;
    if (roll(&actor->dice, 4) == 0)
        block_ask(actor, &block);
    if (roll(&actor->dice, 2))
        block_use(actor, &block, any_stream(actor));
    put_or_free(actor, &block);
}

/* A thread that ends with its work still queued on a stream of its own. */
static void *visit(void *number)
{
    struct actor actor = {.dice = (uint32_t)(uintptr_t)number};
    struct block block;
    actor_go_to(&actor, (int)roll(&actor.dice, DEVICES));
    if (block_make(&actor, 2 * PAGE_BYTES, CU_STREAM_PER_THREAD, &block)) {
        block_use(&actor, &block, CU_STREAM_PER_THREAD);
        if (!shelf_put(&program.shelf, &block))
            block_free(&actor, &block, CU_STREAM_PER_THREAD);
    }
    atomic_fetch_add(&program.n_calls, actor.n_calls);
    return NULL;
}

static void *work(void *number)
{
    struct actor actor = {0};
    actor_begin(&actor, program.seed * 1000 + (uint32_t)(uintptr_t)number);
    for (int i = 0; i < program.rounds; i++) {
        if (roll(&actor.dice, 16) == 0)
            actor_go_to(&actor, (int)roll(&actor.dice, DEVICES));
        make_one(&actor);
        take_one(&actor);
        if (roll(&actor.dice, 8) == 0)
            ask_about_others(&actor);
        if (roll(&actor.dice, 16) == 0)
            MUST(&actor, cuStreamSynchronize(actor.own[actor.device]));
        if (roll(&actor.dice, 64) == 0)
            thread_join(thread_begin(visit, roll(&actor.dice, UINT32_MAX)));
    }
    actor_end(&actor);
    return NULL;
}

static void *run_captures(void *number)
{
    struct actor actor = {0};
    actor_begin(&actor, (uint32_t)(uintptr_t)number);
    while (!atomic_load(&program.is_over)) {
        capture_once(&actor);
        for (int i = 0; i < 50; i++)
            (void)sched_yield();
    }
    actor_end(&actor);
    return NULL;
}

static void *run_contexts(void *number)
{
    struct actor actor = {0};
    actor_begin(&actor, (uint32_t)(uintptr_t)number);
    while (!atomic_load(&program.is_over)) {
        actor_go_to(&actor, (int)roll(&actor.dice, DEVICES));
        context_once(&actor);
        (void)sched_yield();
    }
    actor_end(&actor);
    return NULL;
}

/* The device gets on with its work, whoever waits or not. */
static void *run_device(void *unused)
{
    (void)unused;
    while (!atomic_load(&program.is_over)) {
        (void)vpmm_sim_step();
        (void)sched_yield();
    }
    return NULL;
}

static void *run_signals(void *number)
{
    struct actor actor = {0};
    actor_begin(&actor, (uint32_t)(uintptr_t)number);
    int i = 0;
    do {
        ask_about_others(&actor);
        if (i % 64 == 0 && i < 64 * 100)
            (void)kill(getpid(), SIGUSR1);
        (void)sched_yield();
        i++;
    } while (!atomic_load(&program.is_over));
    actor_end(&actor);
    return NULL;
}

void crowd_tell(const char *scene)
{
    printf("stress: %s: %llu calls by %d threads, %llu allocations served, %llu refused, %llu "
           "patterns checked, %llu captures and %llu ended early, %llu contexts\n",
           scene, (unsigned long long)program.n_calls, THREADS,
           (unsigned long long)program.n_served, (unsigned long long)program.n_refused,
           (unsigned long long)program.n_checked, (unsigned long long)program.n_captures,
           (unsigned long long)program.n_broken_captures, (unsigned long long)program.n_contexts);
}

/* A busy machine may let them begin when the workers are done. */
static void await_helpers(void)
{
    while (!atomic_load(&program.n_captures) || !atomic_load(&program.n_contexts))
        (void)sched_yield();
}

void crowd_run(struct actor *actor, void (*meanwhile)(struct actor *actor))
{
    static void *(*const others[HELPERS])(void *) = {run_captures, run_contexts, run_device,
                                                     run_signals};
    pthread_t workers[WORKERS], helpers[HELPERS];
    struct block first;
    program_start(actor);
    HOLDS(actor, block_make(actor, 4 * PAGE_BYTES, CU_STREAM_LEGACY, &first));
    for (uintptr_t i = 0; i < HELPERS; i++)
        helpers[i] = thread_begin(others[i], i + 100);
    for (uintptr_t i = 0; i < WORKERS; i++)
        workers[i] = thread_begin(work, i);
    if (meanwhile)
        meanwhile(actor);
    for (int i = 0; i < WORKERS; i++)
        thread_join(workers[i]);
    await_helpers();
    atomic_store(&program.is_over, true);
    for (int i = 0; i < HELPERS; i++)
        thread_join(helpers[i]);
    block_free(actor, &first, NULL);
    program_finish(actor);
    HOLDS(actor, program.n_checked > 0 && program.n_captures > 0 && program.n_contexts > 0);
}
