/* SPDX-License-Identifier: MIT */
/* A process that others look at: it does what lines on standard input say, and answers each with
 * one line. */
#define _GNU_SOURCE
#include <cuda.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define BLOCKS_MAX 200000
#define DEVICES_MAX 2
#define ARENA "/memfd:vpmm"
/* Where its first page holds the number of the layout, and whether some of it is elsewhere,
 * and the name of the program. */
#define LAYOUT_OFFSET 24
#define SPILLED_OFFSET 56
#define PROGRAM_OFFSET 80
#define PAIRS 1000
/* 8 TiB, of 2 MiB each. */
#define ROOT_PAGES ((uint64_t)4 << 20)

/* Of the simulated device. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);

static CUdeviceptr blocks[BLOCKS_MAX];
static unsigned n_blocks;
static volatile sig_atomic_t n_signals;

static void must(CUresult result)
{
    if (result)
        printf("unexpected %d\n", (int)result);
}

static void begin(int device)
{
    CUcontext context;
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxSetCurrent(context));
}

static void allocate(bool is_async, size_t bytes)
{
    CUdeviceptr block = 0;
    must(is_async ? cuMemAllocAsync(&block, bytes, NULL) : cuMemAlloc(&block, bytes));
    blocks[n_blocks++] = block;
    printf("block %u\n", n_blocks - 1);
}

/* As many regions: every second one is free. */
static void fragment(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        must(cuMemAlloc(&blocks[n_blocks++], 2 * MIB));
    for (unsigned i = 1; i < n; i += 2)
        must(cuMemFree(blocks[n_blocks - n + i]));
    printf("fragmented\n");
}

static void count_signal(int number)
{
    (void)number;
    n_signals++;
}

/* A child that lives until its parent ends, and allocates if it can. */
static void breed(bool is_raw)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready))
        return;
    pid_t child = is_raw ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) {
        CUdeviceptr block;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)cuMemAllocAsync(&block, 4 * MIB, NULL);
        (void)cuMemFreeAsync(block, NULL);
        (void)!write(ready[1], &byte, 1);
        for (;;)
            (void)pause();
    }
    (void)!read(ready[0], &byte, 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    printf("child %d\n", (int)child);
}

/* The part of the metadata that is in use. */
static bool find_metadata(unsigned char **first_out, size_t *bytes_out)
{
    char line[512];
    bool is_found = false;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        unsigned long first, end;
        is_found = strstr(line, ARENA) && sscanf(line, "%lx-%lx rw-s", &first, &end) == 2;
        *first_out = is_found ? (unsigned char *)first : NULL;
        *bytes_out = is_found ? end - first : 0;
    }
    if (file)
        (void)fclose(file);
    return is_found;
}

/* All words but those of the first page become others, most of them addresses or small numbers.
 * Pages that were never used stay away. */
static void scribble(unsigned seed)
{
    unsigned char *first;
    size_t bytes;
    unsigned n = 0;
    unsigned char in_memory = 0;
    bool is_found = find_metadata(&first, &bytes);
    srandom(seed);
    for (size_t page = 4096; is_found && page < bytes; page += 4096) {
        uint64_t *words = (uint64_t *)(first + page);
        if (mincore(words, 4096, &in_memory) || !(in_memory & 1))
            continue;
        n++;
        for (unsigned i = 0; i < 512; i++)
            if (random() % 4 == 0)
                words[i] ^= random() % 2 ? (uint64_t)random() << 17 : (uint64_t)random() % 4096;
    }
    printf("scribbled %u\n", n);
}

/* The word of that number among those that hold the pages of a root becomes far too large. */
static void stretch(unsigned number)
{
    unsigned char *first, in_memory = 0;
    size_t bytes;
    unsigned n = 0;
    bool is_found = find_metadata(&first, &bytes);
    for (size_t page = 4096; is_found && page < bytes; page += 4096) {
        uint64_t *words = (uint64_t *)(first + page);
        if (mincore(words, 4096, &in_memory) || !(in_memory & 1))
            continue;
        for (unsigned i = 0; i < 512; i++)
            if (words[i] == ROOT_PAGES && n++ == number)
                words[i] = ROOT_PAGES << 18;
    }
    printf("stretched %u of %u\n", number, n);
}

static void change_first_page(size_t offset)
{
    unsigned char *first;
    size_t bytes;
    if (find_metadata(&first, &bytes))
        first[offset] ^= 1;
    printf("changed\n");
}

static void rename_program(void)
{
    unsigned char *first;
    size_t bytes;
    if (find_metadata(&first, &bytes))
        (void)snprintf((char *)first + PROGRAM_OFFSET, 64, "\033[2Jx");
    printf("renamed\n");
}

/* Allocates and frees once it is told to. */
static void *work(void *context)
{
    char line[16];
    CUdeviceptr block;
    must(cuCtxSetCurrent(context));
    if (read(STDIN_FILENO, line, sizeof line) <= 0)
        return NULL;
    for (unsigned i = 1; i <= PAIRS; i++) {
        must(cuMemAllocAsync(&block, i % 50 * MIB + 2 * MIB, NULL));
        must(i % 2 ? cuMemFreeAsync(block, NULL) : cuMemFree(block));
    }
    printf("worked\n");
    (void)fflush(stdout);
    return NULL;
}

/* The dump of this thread, while another one has work to do. */
static void raise_beside_work(void)
{
    pthread_t thread;
    CUcontext context;
    must(cuCtxGetCurrent(&context));
    if (pthread_create(&thread, NULL, work, context))
        return;
    (void)raise(SIGUSR1);
    (void)pthread_join(thread, NULL);
    printf("raised\n");
}

static void limit(int resource, rlim_t most)
{
    const struct rlimit both = {most, most};
    printf("limit %d\n", setrlimit(resource, &both));
}

/* Waits for work that has no end. */
static void block_for_ever(void)
{
    CUdeviceptr block;
    must(cuMemAllocAsync(&block, 4 * MIB, NULL));
    (void)vpmm_sim_spin(NULL, false, block, 1, 1);
    must(cuMemFreeAsync(block, NULL));
    printf("blocking\n");
    (void)fflush(stdout);
    must(cuStreamSynchronize(NULL));
}

static void *obey_lines(void *unused);

/* The first thread ends, and another one goes on. */
static void leave(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, obey_lines, NULL) == 0)
        pthread_exit(NULL);
}

static void obey(const char *what, unsigned long number)
{
    if (strcmp(what, "device") == 0) {
        begin((int)number);
        printf("ready\n");
    } else if (strcmp(what, "sync") == 0) {
        allocate(false, number);
    } else if (strcmp(what, "async") == 0) {
        allocate(true, number);
    } else if (strcmp(what, "free") == 0) {
        must(cuMemFree(blocks[number]));
        printf("freed\n");
    } else if (strcmp(what, "asyncfree") == 0) {
        must(cuMemFreeAsync(blocks[number], NULL));
        printf("freed\n");
    } else if (strcmp(what, "fragment") == 0) {
        fragment((unsigned)number);
    } else if (strcmp(what, "spin") == 0) {
        printf("spinning %d\n", vpmm_sim_spin(NULL, false, blocks[number], 1, 1) != NULL);
    } else if (strcmp(what, "block") == 0) {
        block_for_ever();
    } else if (strcmp(what, "handle") == 0) {
        (void)signal(SIGUSR1, count_signal);
        printf("handling\n");
    } else if (strcmp(what, "raise") == 0) {
        (void)raise(SIGUSR1);
        printf("raised %d\n", (int)n_signals);
    } else if (strcmp(what, "fork") == 0) {
        breed(false);
    } else if (strcmp(what, "rawfork") == 0) {
        breed(true);
    } else if (strcmp(what, "scribble") == 0) {
        scribble((unsigned)number);
    } else if (strcmp(what, "stretch") == 0) {
        stretch((unsigned)number);
    } else if (strcmp(what, "layout") == 0) {
        change_first_page(LAYOUT_OFFSET);
    } else if (strcmp(what, "spill") == 0) {
        change_first_page(SPILLED_OFFSET);
    } else if (strcmp(what, "rename") == 0) {
        rename_program();
    } else if (strcmp(what, "leave") == 0) {
        leave();
    } else if (strcmp(what, "raisebeside") == 0) {
        raise_beside_work();
    } else if (strcmp(what, "close") == 0) {
        for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
            (void)close(fd);
        printf("closed\n");
    } else if (strcmp(what, "filesize") == 0) {
        limit(RLIMIT_FSIZE, number);
    } else if (strcmp(what, "descriptors") == 0) {
        limit(RLIMIT_NOFILE, number);
    } else if (strcmp(what, "undumpable") == 0) {
        printf("undumpable %d\n", prctl(PR_SET_DUMPABLE, 0));
    } else {
        printf("what is %s\n", what);
    }
}

static void *obey_lines(void *unused)
{
    char line[128], what[64];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long number = 0;
        if (sscanf(line, "%63s %lu", what, &number) >= 1)
            obey(what, number);
        (void)fflush(stdout);
    }
    exit(0);
    return unused;
}

int main(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return obey_lines(NULL) != NULL;
}
