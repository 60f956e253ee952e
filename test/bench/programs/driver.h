/* SPDX-License-Identifier: MIT */
/* What the benchmark programs of the driver API share, as bench.cuh is for those of the runtime:
 * how they begin, how long calls take, and how figures are printed. They need no nvcc, and so they
 * run on the simulated device too. Nothing here knows that a library may be preloaded.
 *
 * A figure is a line "name,value,unit"; a line that begins with '@' is a mark, where the program
 * waits for a line on standard input. Ends with 0 when all of its work was done. */
#ifndef VPMM_TEST_BENCH_DRIVER_H
#define VPMM_TEST_BENCH_DRIVER_H

#include "../../programs/truth.h"

#include <time.h>

/* The figure's name is `name` with `ending` behind it. */
static inline void figure_of(const char *name, const char *ending, double value, const char *unit)
{
    printf("%s%s,%.9g,%s\n", name, ending, value, unit);
    fflush(stdout);
}

static inline void figure(const char *name, double value, const char *unit)
{
    figure_of(name, "", value, unit);
}

/* Says on standard error what is wrong, and ends the program with 2. */
_Noreturn static inline void give_up(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(2);
}

static inline double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Says `mark` and waits until whoever started the program answers with a line. */
static inline void wait_for_word(const char *mark)
{
    char word[16];
    printf("@%s\n", mark);
    fflush(stdout);
    if (!fgets(word, sizeof word, stdin))
        give_up("standard input ended at a mark");
}

/* ---- arguments ---- */

static inline const char *word_at(int argc, char **argv, int i)
{
    if (i >= argc)
        give_up("an argument is missing");
    return argv[i];
}

/* The program ends where the argument is no whole number from `least` on. */
static inline int number_at(int argc, char **argv, int i, int least)
{
    char *end;
    const char *word = word_at(argc, argv, i);
    long value = strtol(word, &end, 10);
    if (end == word || *end || value < least || value > INT32_MAX)
        give_up("an argument that should be a number is none, or is too small");
    return (int)value;
}

/* Makes a context. The first argument is "async", and the default pool, which this answers, keeps
 * everything at a synchronisation, or "async0", and it keeps nothing. */
static inline CUmemoryPool begin(int argc, char **argv)
{
    CUmemoryPool pool;
    const char *api = word_at(argc, argv, 1);
    cuuint64_t threshold_bytes = strcmp(api, "async") == 0 ? UINT64_MAX : 0;
    if (threshold_bytes == 0 && strcmp(api, "async0") != 0)
        give_up("the first argument is async or async0");
    /* Loading a kernel lazily while another one runs would wait for that one. */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    MUST(cuDeviceGetDefaultMemPool(&pool, truth_start()));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold_bytes));
    return pool;
}

static inline CUstream stream_make(unsigned flags)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static inline CUevent event_make(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* ---- times ---- */

/* A sample of at most `room` times. */
struct times {
    double *ns;
    size_t n, room;
};

static inline struct times times_make(size_t room)
{
    struct times times = {malloc(room * sizeof(double)), 0, room};
    if (!times.ns)
        give_up("no memory for the times");
    return times;
}

static inline void times_free(struct times *times)
{
    free(times->ns);
    *times = (struct times){0};
}

static inline void times_add(struct times *times, double ns)
{
    if (times->n == times->room)
        give_up("more was timed than there is room for");
    times->ns[times->n++] = ns;
}

static inline double times_mean(const struct times *times)
{
    double sum = 0;
    for (size_t i = 0; i < times->n; i++)
        sum += times->ns[i];
    return times->n ? sum / (double)times->n : 0;
}

static inline int times_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* The smallest time that `share` of all times do not exceed; 0 of an empty sample. Sorts them. */
static inline double times_quantile(struct times *times, double share)
{
    size_t at = (size_t)(share * (double)times->n);
    if (times->n == 0)
        return 0;
    qsort(times->ns, times->n, sizeof *times->ns, times_compare);
    return times->ns[at < times->n ? at : times->n - 1];
}

/* Prints NAME_p50 and NAME_p99. */
static inline void figure_quantiles(const char *name, struct times *times)
{
    figure_of(name, "_p50", times_quantile(times, 0.5), "ns");
    figure_of(name, "_p99", times_quantile(times, 0.99), "ns");
}

#endif
