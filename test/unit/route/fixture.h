/* SPDX-License-Identifier: MIT */
/* A router over the fakes for each test, and requests to it. */
#ifndef VPMM_TEST_ROUTE_FIXTURE_H
#define VPMM_TEST_ROUTE_FIXTURE_H

#include "route/route.h"

#include "fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct fixture {
    struct vpmm_config config; /* the defaults; a test may change it until the first request */
    struct vpmm_router *router;
    unsigned n_first_heaps, n_large_heaps;
    size_t mapped_bytes; /* of metadata */
    bool is_memory_scarce;
};

extern struct fixture fixture;
extern const struct vpmm_memory fixture_memory;
extern const struct vpmm_first_heap fixture_first_heap;

int fixture_set_up(void **state);
int fixture_tear_down(void **state);
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

enum vpmm_route sync_malloc(uint64_t bytes);
/* As the wrappers ask it. */
enum vpmm_route routed(const struct vpmm_route_request *request, uint64_t *address_out);
enum vpmm_route async_malloc(uint64_t bytes, int stream);
/* What is written to standard error by one cudaMalloc. */
const char *said_by_malloc(uint64_t bytes);

#endif
