/* SPDX-License-Identifier: MIT */
/* What the tests of the simulated machine share: machines, a recorder of misuse, and kernels that
 * leave a trail. */
#ifndef TEST_SIM_FIXTURE_H
#define TEST_SIM_FIXTURE_H

#include "sim/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)
#define OK(call) assert_int_equal((call), CUDA_SUCCESS)
#define IS(code, call) assert_int_equal((call), (code))

struct fixture {
    struct sim *sim;
    CUcontext context; /* of device 0, current */
    char report[600];  /* of the last misuse */
    uint64_t n_taken;  /* misuses that the test expected */
};

/* Queues are adversarial, every misuse is recorded; `change` may alter the configuration (may be
 * NULL). */
struct fixture *fixture_new(void (*change)(struct sim_config *config));
/* Also asserts that no misuse is left that the test did not take. */
void fixture_end(struct fixture *fixture);
/* Asserts that `misuse` was seen once since the last such question, and nothing else. */
void misuse_taken(struct fixture *fixture, enum sim_misuse misuse);
void eager(struct sim_config *config);
void two_devices(struct sim_config *config);

/* A trail: each step queued writes its number when it runs. */
struct trail {
    int n;
    int steps[256];
};
CUresult step_queue(struct fixture *fixture, CUstream stream, struct trail *trail, int number);
/* The place of a number in the trail, -1 when it has not run. */
int step_at(const struct trail *trail, int number);

/* Kernels on one word of device memory. */
CUresult word_write(struct fixture *fixture, CUstream stream, CUdeviceptr address, uint32_t value);
uint32_t word_peek(struct fixture *fixture, CUdevice device, CUdeviceptr address);

CUstream stream_make(struct fixture *fixture, unsigned flags);
CUevent event_make(struct fixture *fixture);
/* A reservation of `n` pages, and a page mapped with access for device 0. */
CUdeviceptr pages_reserve(struct fixture *fixture, unsigned n);
CUmemGenericAllocationHandle page_create(struct fixture *fixture, CUdevice device, unsigned n);
void page_access(struct fixture *fixture, CUdeviceptr address, uint64_t bytes, CUdevice device);
/* What the tests of captures use: a stream to capture on, made with `flags`, and what other calls
 * may meet meanwhile. */
struct capture_scene {
    struct fixture *f;
    CUstream stream, other; /* `other` is non-blocking */
    CUevent event, spare;
    CUdeviceptr plain, mapped; /* behind the mapped page is an empty one */
};
struct capture_scene capture_scene_new(unsigned flags);
struct sim_counts counts_of(struct fixture *fixture);

#endif
