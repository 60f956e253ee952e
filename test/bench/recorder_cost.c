/* SPDX-License-Identifier: MIT */
/* What it costs to record a call: two looks at the clock and one entry. Prints, for one thread and
 * for two, the nanoseconds of processor time that an entry takes its thread, how many are recorded
 * a second, and how many were dropped.
 *
 *     recorder-cost [FILE [ENTRIES]] */
#define _GNU_SOURCE
#include "recorder/recorder.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 2

static struct vpmm_recorder recorder;
static uint64_t n_entries = 4000000;

static double now_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* `cost` gets the thread's processor time. */
static void *record(void *cost)
{
    struct vpmm_recorder_writer writer = {0};
    double begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (uint64_t i = 0; i < n_entries; i++) {
        struct vpmm_trace_entry entry = {
            .ns = vpmm_recorder_now_ns(&recorder),
            .kind = VPMM_TRACE_MALLOC,
            .path = VPMM_TRACE_BY_CACHE,
            .address = i << 21,
            .bytes = (uint64_t)1 << 21,
        };
        entry.duration_ns = (uint32_t)(vpmm_recorder_now_ns(&recorder) - entry.ns);
        vpmm_recorder_write(&recorder, &writer, &entry);
    }
    *(double *)cost = now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
    return NULL;
}

static int measure(const char *path, int n_threads)
{
    const char *why;
    pthread_t threads[THREADS_MAX];
    double costs[THREADS_MAX] = {0};
    recorder = (struct vpmm_recorder){0};
    if (vpmm_recorder_open(&recorder, path, 0, "recorder-cost", &why)) {
        (void)fprintf(stderr, "%s: %s\n", path, why);
        return 1;
    }
    double begin_ns = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, record, &costs[i]) != 0)
            return 1;
    for (int i = 0; i < n_threads; i++)
        (void)pthread_join(threads[i], NULL);
    double wall_ns = now_ns(CLOCK_MONOTONIC) - begin_ns;
    (void)printf("%d thread(s): %.1f ns an entry, %.1f M entries a second, %llu dropped\n",
                 n_threads, (costs[0] + costs[1]) / (double)n_entries / n_threads,
                 (double)n_entries * n_threads / wall_ns * 1e3,
                 (unsigned long long)recorder.header->dropped);
    vpmm_recorder_end(&recorder);
    vpmm_recorder_forget(&recorder);
    (void)unlink(path);
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "/tmp/recorder-cost.trace";
    if (argc > 2)
        n_entries = strtoull(argv[2], NULL, 10);
    return measure(path, 1) || measure(path, 2);
}
