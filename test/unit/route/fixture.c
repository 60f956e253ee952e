/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "fixture.h"

#include "observe/log.h"

#include <stdio.h>
#include <unistd.h>

struct fixture fixture;

static void *map(void *self, size_t bytes)
{
    (void)self;
    if (fixture.is_memory_scarce)
        return NULL;
    fixture.mapped_bytes += bytes;
    return vpmm_memory_system.map(NULL, bytes);
}

static void unmap(void *self, void *address, size_t bytes)
{
    (void)self;
    fixture.mapped_bytes -= bytes;
    vpmm_memory_system.unmap(NULL, address, bytes);
}

const struct vpmm_memory fixture_memory = {NULL, map, unmap};

static void on_first_heap(void *self)
{
    assert_ptr_equal(self, &fixture.config);
    fixture.n_first_heaps++;
}

static void on_large_heap(void *self)
{
    assert_ptr_equal(self, &fixture.config);
    fixture.n_large_heaps++;
}

const struct vpmm_first_heap fixture_first_heap = {&fixture.config, on_first_heap, on_large_heap};

int fixture_set_up(void **state)
{
    (void)state;
    char *const nothing[] = {NULL};
    struct vpmm_complaints complaints;
    vpmm_config_read(&fixture.config, &complaints, nothing);
    vpmm_log_set_level(0);
    fakes_reset();
    fixture.n_first_heaps = fixture.n_large_heaps = 0;
    return (int)vpmm_router_create(&fixture.config, &fake_driver, &fixture_memory,
                                   &fixture_first_heap, &fixture.router);
}

int fixture_tear_down(void **state)
{
    (void)state;
    vpmm_router_destroy(fixture.router);
    assert_int_equal(fixture.mapped_bytes, 0);
    return 0;
}

enum vpmm_route sync_malloc(uint64_t bytes)
{
    const struct vpmm_route_request request = {.bytes = bytes};
    uint64_t address = 0;
    enum vpmm_route route = vpmm_router_malloc(fixture.router, &request, &address);
    assert_true((route == VPMM_ROUTE_POOL) == (address != 0));
    return route;
}

enum vpmm_route routed(const struct vpmm_route_request *request, uint64_t *address_out)
{
    bool may_be_warm = request->is_async && !request->mempool && !request->names_explicit_pool;
    if (may_be_warm && !vpmm_router_malloc_warm(fixture.router, request->bytes, request->stream,
                                                request->served_out, address_out))
        return VPMM_ROUTE_POOL;
    return vpmm_router_malloc(fixture.router, request, address_out);
}

enum vpmm_route async_malloc(uint64_t bytes, int stream)
{
    const struct vpmm_route_request request = {
        .bytes = bytes, .is_async = true, .stream = fake_stream(stream)};
    uint64_t address = 0;
    enum vpmm_route route = routed(&request, &address);
    assert_true((route == VPMM_ROUTE_POOL) == (address != 0));
    return route;
}

const char *said_by_malloc(uint64_t bytes)
{
    static char text[4096];
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    vpmm_log_set_level(VPMM_LOG_IS_WARNING);
    (void)sync_malloc(bytes);
    vpmm_log_set_level(0);
    (void)dup2(before, STDERR_FILENO);
    (void)close(before);
    ssize_t n = pread(fileno(file), text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    (void)fclose(file);
    return text;
}
