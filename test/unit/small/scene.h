/* SPDX-License-Identifier: MIT */
/* The heap's fixture with a layer of small blocks on it, and a few words to write tests with. Every
 * step is audited. */
#ifndef VPMM_TEST_UNIT_SMALL_SCENE_H
#define VPMM_TEST_UNIT_SMALL_SCENE_H

#include "small/small.h"
#include "../heap/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define SAME(expected, actual) assert_int_equal((actual), (expected))

struct scene {
    struct fixture f;
    struct vpmm_small *small;
    struct vpmm_small_params params; /* before scene_setup */
};

/* Pages of 2 MiB, one an extent, 256 MiB of device with bytes, adversarial order, races reported.
 */
void scene_params(struct fixture_params *params);
/* With just these. */
void scene_setup(struct scene *scene);
void scene_setup_with(struct scene *scene, const struct fixture_params *params);
/* Also asserts that no block is live, and that every slab goes back once all work is done. */
void scene_teardown(struct scene *scene);
/* The same with blocks left live. */
void scene_abandon(struct scene *scene);

/* NULL stream: cudaMalloc or cudaFree. */
enum vpmm_status scene_try_malloc(struct scene *scene, uint64_t bytes, CUstream stream,
                                  uint64_t *address_out);
uint64_t scene_malloc(struct scene *scene, uint64_t bytes, CUstream stream);
/* As vpmm_small_malloc_warm; 0: it is not served. */
uint64_t scene_malloc_warm(struct scene *scene, uint64_t bytes, CUstream stream);
enum vpmm_status scene_try_free(struct scene *scene, uint64_t address, CUstream stream);
void scene_free(struct scene *scene, uint64_t address, CUstream stream);
void scene_audit(struct scene *scene);
struct vpmm_small_figures scene_figures(struct scene *scene);
/* Queues work on those bytes; it spins until *gate (NULL: does not). */
void scene_work(struct scene *scene, CUstream stream, uint64_t address, uint64_t bytes,
                const volatile bool *gate);

#endif
