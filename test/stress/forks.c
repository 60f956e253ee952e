/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "crowd.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 6

static void expect_good_end(struct actor *actor, pid_t child)
{
    int status;
    HOLDS(actor, child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up(actor, "a child's end", status, __FILE__, __LINE__);
}

/* CUDA does not work in the child of a process that uses it, with or without the library. */
__attribute__((noreturn)) static void be_child(struct actor *actor)
{
    CUdeviceptr address = 0;
    size_t free_bytes;
    size_t total_bytes;
    EXPECT(actor, cuMemAlloc(&address, 4 * PAGE_BYTES), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(actor, cuMemAllocAsync_ptsz(&address, 4 * PAGE_BYTES, NULL), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(actor, cuMemFree(program.recent[0]), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(actor, cuMemFreeAsync(program.recent[1], NULL), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(actor, cuMemGetInfo(&free_bytes, &total_bytes), CUDA_ERROR_NOT_INITIALIZED);
    exit(0);
}

static void fork_often(struct actor *actor)
{
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0)
            be_child(actor);
        expect_good_end(actor, child);
    }
}

void scene_forks(struct actor *actor)
{
    crowd_run(actor, fork_often);
}

/* Before any pool: the library wakes up in the parent's threads while children begin afresh. */
static void *ask_in_vain(void *number)
{
    struct actor actor = {.dice = (uint32_t)(uintptr_t)number};
    CUdeviceptr address = 0;
    while (!atomic_load(&program.is_over)) {
        EXPECT(&actor, cuMemAlloc(&address, 4 * PAGE_BYTES), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(&actor, cuMemFree(PAGE_BYTES), CUDA_ERROR_NOT_INITIALIZED);
        (void)sched_yield();
    }
    atomic_fetch_add(&program.n_calls, actor.n_calls);
    return NULL;
}

/* The pool's answer is known by the address space it reserved. */
__attribute__((noreturn)) static void be_fresh(struct actor *actor)
{
    struct block block;
    program_start(actor);
    HOLDS(actor, block_make(actor, 4 * PAGE_BYTES, CU_STREAM_LEGACY, &block));
    block_use(actor, &block, CU_STREAM_LEGACY);
    HOLDS(actor, vpmm_sim_calls("cuMemAddressReserve") == 1);
    block_free(actor, &block, NULL);
    program_finish(actor);
    exit(0);
}

void scene_fresh(struct actor *actor)
{
    pthread_t threads[THREADS - 1];
    for (uintptr_t i = 0; i < THREADS - 1; i++)
        threads[i] = thread_begin(ask_in_vain, i);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0)
            be_fresh(actor);
        expect_good_end(actor, child);
    }
    atomic_store(&program.is_over, true);
    for (int i = 0; i < THREADS - 1; i++)
        thread_join(threads[i]);
}
