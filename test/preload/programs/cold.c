/* SPDX-License-Identifier: MIT */
/* Sixteen threads make the program's first look-ups and first calls at once. Prints how many got
 * the library argv[2] for cuMemAlloc_v2 of the driver argv[1], and how many calls succeeded. */
#define _GNU_SOURCE
#include "reach.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 16

static pthread_barrier_t start;
static atomic_int n_ours, n_calls;
static void *driver;
static const char *expected;

static void *run(void *unused)
{
    (void)unused;
    (void)pthread_barrier_wait(&start);
    void *found = dlsym(driver, "cuMemAlloc_v2");
    if (strcmp(owner(found), expected) == 0)
        atomic_fetch_add(&n_ours, 1);
    int (*allocate)(unsigned long long *, size_t);
    unsigned long long address = 0;
    memcpy(&allocate, &found, sizeof allocate);
    if (allocate(&address, 1u << 20) == 0)
        atomic_fetch_add(&n_calls, 1);
    return NULL;
}

int main(int n, char **arguments)
{
    pthread_t threads[THREADS];
    driver = n == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    expected = arguments[2];
    if (!driver || pthread_barrier_init(&start, NULL, THREADS) != 0)
        return 1;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    printf("ours %d\ncalls %d\n", n_ours, n_calls);
    (void)reach_by;
    return 0;
}
