/* SPDX-License-Identifier: MIT */
/* An ordinary program under the library, on the fake driver: one step is one call and its answer.
 * The answers of all steps are its transcript. Blocks get a pattern at both ends and are checked.
 */
#ifndef VPMM_TEST_FAULT_ACT_H
#define VPMM_TEST_FAULT_ACT_H

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define STEPS_MAX 256

/* What a run leaves for the process that judges it; shared memory. */
struct transcript {
    int n;
    int answers[STEPS_MAX];
    int lines[STEPS_MAX];      /* of the step's source */
    bool is_silent[STEPS_MAX]; /* may succeed without a driver call, on a lost device, too */
    bool has_struck;
    int struck_at;       /* the step during which the fault first did */
    char complaint[256]; /* empty: nothing is wrong */
};

struct act {
    const char *name;
    const char *const *environment; /* NAME, VALUE, ...; NULL ends them */
    void (*run)(void);
    unsigned device_mib;
    bool is_early; /* armed right after cuInit, before there is a context */
    bool is_tight; /* needs all that was ever freed to be given back */
};
/* Ended by one without a name. */
extern const struct act acts[];

extern struct transcript *transcript;

/* Around the call of a step; then what is known of it. */
void step_begin(void);
void step_end(CUresult answer, int line);
void step_is_silent(void);
#define STEP(call) (step_begin(), step_end((call), __LINE__))
#define SILENT_STEP(call) (STEP(call), step_is_silent())

struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned char pattern;
};

enum kind {
    PLAIN,
    ASYNC,
    ASYNC_PER_THREAD,
    FROM_POOL,
    FROM_POOL_PER_THREAD
};

/* Fills and checks are steps, too; they run on `stream` in its kind's spelling. */
struct block make(enum kind kind, size_t mib, CUstream stream, int line);
void check(const struct block *block, int line);
void drop(enum kind kind, const struct block *block, CUstream stream, int line);
#define MAKE(kind, mib, stream) make(kind, mib, stream, __LINE__)
#define CHECK(block) check(block, __LINE__)
#define DROP(kind, block, stream) drop(kind, block, stream, __LINE__)

/* The primary context of `device`, current. */
void enter_device(int device, int line);
#define ENTER(device) enter_device(device, __LINE__)

/* The first complaint counts. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
