/* SPDX-License-Identifier: MIT */
/* Two devices in every state that a look can show, and a file of the metadata that they left. */
#define _GNU_SOURCE
#include "look_sample.h"

#include "report/report.h"
#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define BLOCKS 12
#define PAGE_BYTES 4096
#define PAGE_WORDS (PAGE_BYTES / sizeof(uint64_t))

static uint64_t allocate(struct vpmm_router *router, uint64_t bytes, CUstream stream)
{
    const struct vpmm_route_request request = {
        .bytes = bytes, .is_async = stream != NULL, .stream = (vpmm_stream_handle)stream};
    uint64_t address;
    assert_int_equal(vpmm_router_malloc(router, &request, &address), VPMM_ROUTE_POOL);
    return address;
}

/* Blocks of two streams, every other one freed behind work, and one that needs moved pages. */
static void work(struct sim *sim, struct vpmm_router *router)
{
    CUstream streams[2];
    uint64_t blocks[BLOCKS];
    enum vpmm_status status;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &streams[i]),
                         CUDA_SUCCESS);
    for (uint64_t i = 0; i < BLOCKS; i++)
        blocks[i] = allocate(router, (2 + i) * 2 * MIB + 1, i % 3 ? streams[i % 2] : NULL);
    for (uint64_t i = 0; i < BLOCKS; i += 2)
        assert_int_equal(
            vpmm_router_free(router, blocks[i], (vpmm_stream_handle)streams[i / 2 % 2], &status),
            VPMM_FREED);
    (void)allocate(router, 60 * MIB, streams[0]);
}

static void live(struct sim *sim, const struct vpmm_arena *arena, struct vpmm_router **router_out)
{
    static struct vpmm_config config;
    static struct vpmm_driver driver;
    char *const nothing[] = {NULL};
    const struct vpmm_first_heap first_heap = {NULL, NULL, NULL};
    struct vpmm_complaints complaints;
    vpmm_config_read(&config, &complaints, nothing);
    sim_table_fill(sim, &driver);
    assert_int_equal(vpmm_router_create(&config, &driver, &arena->memory, &first_heap, router_out),
                     VPMM_OK);
    for (int device = 0; device < 2; device++) {
        CUcontext context;
        assert_int_equal(sim_ctx_create(sim, 0, device, &context), CUDA_SUCCESS);
        work(sim, *router_out);
    }
}

size_t look_sample_place(const struct look_sample *sample, size_t sound)
{
    return sample->pages[sound / PAGE_WORDS] + sound % PAGE_WORDS;
}

static void copy_page(struct look_sample *sample, const struct vpmm_arena *arena, off_t at)
{
    size_t n = sample->n_sound, n_pages = n / PAGE_WORDS;
    sample->sound = realloc(sample->sound, n * sizeof *sample->sound + PAGE_BYTES);
    sample->pages = realloc(sample->pages, (n_pages + 1) * sizeof *sample->pages);
    assert_true(sample->sound && sample->pages);
    sample->pages[n_pages] = (size_t)at / sizeof *sample->sound;
    sample->n_sound += PAGE_WORDS;
    assert_int_equal(pread(arena->fd, sample->sound + n, PAGE_BYTES, at), PAGE_BYTES);
    assert_int_equal(pwrite(sample->fd, sample->sound + n, PAGE_BYTES, at), PAGE_BYTES);
}

/* The reader wants a file of that name and size. */
static void copy(const struct vpmm_arena *arena, struct look_sample *sample)
{
    off_t used = (off_t)vpmm_atomic_load(&arena->header->used_bytes), end = 0;
    *sample = (struct look_sample){.bytes = (uint64_t)used, .address = arena->header->address};
    sample->fd = memfd_create(VPMM_ARENA_NAME, MFD_CLOEXEC);
    assert_true(sample->fd >= 0);
    assert_int_equal(ftruncate(sample->fd, (off_t)arena->header->bytes), 0);
    for (off_t at; (at = lseek(arena->fd, end, SEEK_DATA)) >= 0 && at < used;) {
        end = lseek(arena->fd, at, SEEK_HOLE);
        for (; at < end && at < used; at += PAGE_BYTES)
            copy_page(sample, arena, at);
    }
    sample->words = mmap(NULL, (size_t)used, PROT_READ | PROT_WRITE, MAP_SHARED, sample->fd, 0);
    assert_true(sample->words != MAP_FAILED);
}

void look_sample_make(struct look_sample *sample_out)
{
    struct vpmm_arena arena;
    struct vpmm_router *router = NULL;
    struct sim_config machine;
    sim_config_default(&machine);
    machine.n_devices = 2;
    machine.device_bytes = 1024 * MIB;
    machine.has_bytes = false;
    struct sim *sim = sim_create(&machine);
    assert_true(
        vpmm_arena_create(&arena, VPMM_ARENA_BYTES, vpmm_report_version, vpmm_report_layout()));
    live(sim, &arena, &router);
    vpmm_arena_publish(&arena, router);
    copy(&arena, sample_out);
    (void)sim_drain(sim);
    vpmm_router_destroy(router);
    vpmm_arena_destroy(&arena);
    sim_destroy(sim);
}
