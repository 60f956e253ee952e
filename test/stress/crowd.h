/* SPDX-License-Identifier: MIT */
/* Many threads that do all of it at once, and the scenes made of them. */
#ifndef VPMM_TEST_STRESS_CROWD_H
#define VPMM_TEST_STRESS_CROWD_H

#include "program.h"

#define THREADS 16

pthread_t thread_begin(void *(*run)(void *), uintptr_t number);
void thread_join(pthread_t thread);

/* Starts the program, lets all threads work and `meanwhile` (may be NULL)
 * in the calling one, and finishes it. */
void crowd_run(struct actor *actor, void (*meanwhile)(struct actor *actor));
/* Prints what the program counted. */
void crowd_tell(const char *scene);

/* Forks in the middle of everything (forks.c), and before any pool. */
void scene_forks(struct actor *actor);
void scene_fresh(struct actor *actor);

#endif
