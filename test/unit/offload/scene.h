/* SPDX-License-Identifier: MIT */
/* A small model on a simulated device whose copies and kernels take their time: what is read before
 * it has arrived, or overwritten while it is read, shows as wrong bytes. */
#ifndef VPMM_TEST_UNIT_OFFLOAD_SCENE_H
#define VPMM_TEST_UNIT_OFFLOAD_SCENE_H

#include "offload/offload.h"
#include "sim/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define CHUNK ((uint64_t)4096)
#define GROUPS_MAX 64u
#define MESSAGE_ROOM 512

struct scene {
    struct sim *sim;
    struct vpmm_driver driver; /* without times, which are the clock's: see event_elapsed */
    enum vpmm_status (*event_elapsed)(void *, vpmm_event_handle, vpmm_event_handle, uint64_t *);
    struct vpmm_memory memory; /* counts, and fails on cue */
    uint64_t maps_until_failure, maps_outstanding;
    struct vpmm_offload *offload;
    struct vpmm_offload_params params; /* for `scene_make`; budget 0 needs a value */
    CUcontext context;
    CUstream stream;
    char message[MESSAGE_ROOM];

    uint32_t n_groups;
    uint64_t addresses[GROUPS_MAX], bytes[GROUPS_MAX]; /* a weight a group */
    const unsigned char *expected[GROUPS_MAX];         /* its bytes */
    uint32_t numbers[GROUPS_MAX];
    uint32_t order[4 * GROUPS_MAX];
    uint32_t n_steps;
    uint64_t random;
    uint64_t n_read, n_wrong;          /* kernels, and those that read wrong bytes */
    uint64_t limit_bytes, taken_bytes; /* of the ledger */
};

/* A device of 64 MiB with pages of 4 KiB, adversarial, with race checks; a context and a stream. */
void scene_setup(struct scene *scene);
/* Asserts that nothing is left, that no kernel read a wrong byte, and that some kernel read. */
void scene_teardown(struct scene *scene);
uint64_t scene_random(struct scene *scene, uint64_t below);

/* So many random bytes, the caller's to free. */
const unsigned char *scene_pattern(struct scene *scene, uint64_t bytes);

/* Makes the object with `budget` chunks. */
void scene_make(struct scene *scene, uint64_t budget_chunks);
/* Adds a group of one weight of so many bytes, filled with a pattern of its own. */
uint32_t scene_add(struct scene *scene, enum vpmm_offload_kind kind, uint64_t bytes);
/* So many streamed groups of 1 to `chunks_max` chunks, used in their order. */
void scene_add_many(struct scene *scene, uint32_t n, uint64_t chunks_max);
void scene_order(struct scene *scene);
void scene_seal(struct scene *scene);

/* Lets some of the queued work go on. */
void scene_stir(struct scene *scene);
/* A kernel that reads and compares the group. */
void scene_read(struct scene *scene, uint32_t group, CUstream stream);
/* begin, the steps, end; what fails is the answer. */
enum vpmm_status scene_try_pass(struct scene *scene);
void scene_pass(struct scene *scene);
enum vpmm_status scene_step(struct scene *scene, uint32_t group, CUstream stream);
vpmm_stream_handle scene_handle(CUstream stream);
struct vpmm_offload_stats scene_stats(struct scene *scene);
/* What the device has in use. */
uint64_t scene_used(struct scene *scene);

#endif
