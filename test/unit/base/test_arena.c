/* SPDX-License-Identifier: MIT */
/* Metadata that others may look at: pieces, their reuse, and what readers find. */
#define _GNU_SOURCE
#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES (64 * MIB)
#define THREADS 4
#define ROUNDS 2000

static void *take(struct vpmm_arena *arena, size_t bytes)
{
    return arena->memory.map(arena->memory.self, bytes);
}

static void give(struct vpmm_arena *arena, void *piece, size_t bytes)
{
    arena->memory.unmap(arena->memory.self, piece, bytes);
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool is_inside(const struct vpmm_arena *arena, const void *piece)
{
    return (uintptr_t)piece - (uintptr_t)arena->header < arena->bytes;
}

static void make(struct vpmm_arena *arena, uint64_t bytes)
{
    assert_true(vpmm_arena_create(arena, bytes, "1.2.3", 4711));
}

static unsigned count_descriptors(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 2048; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- pieces ---- */

static void pieces_are_zeroed_pages_of_one_file(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    unsigned char seen[3];
    make(&arena, BYTES);
    unsigned char *first = take(&arena, 3), *second = take(&arena, 10000);
    assert_true(is_inside(&arena, first) && is_inside(&arena, second));
    assert_int_equal((uintptr_t)first % arena.page_bytes, 0);
    assert_int_equal((uintptr_t)second % arena.page_bytes, 0);
    assert_true(first + arena.page_bytes <= second);
    assert_true(is_zero(first, 3) && is_zero(second, 10000));
    memset(second, 7, 3);
    off_t offset = (off_t)(second - (unsigned char *)arena.header);
    assert_int_equal(pread(arena.fd, seen, 3, offset), 3);
    assert_memory_equal(seen, second, 3);
    assert_int_equal(seen[2], 7);
    assert_true(vpmm_atomic_load(&arena.header->used_bytes) >= (uint64_t)offset + 10000);
    vpmm_arena_destroy(&arena);
}

static void what_is_given_back_is_used_again_and_zeroed(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, 5000, 300000, 5 << 20};
    struct vpmm_arena arena;
    make(&arena, BYTES);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *piece = take(&arena, sizes[i]);
        memset(piece, 0xff, sizes[i]);
        give(&arena, piece, sizes[i]);
        uint64_t used = vpmm_atomic_load(&arena.header->used_bytes);
        unsigned char *again = take(&arena, sizes[i]);
        assert_true(vpmm_atomic_load(&arena.header->used_bytes) == used);
        unsigned char *other = take(&arena, sizes[i]);
        assert_ptr_equal(again, piece);
        assert_true(is_zero(again, sizes[i]) && is_zero(other, sizes[i]));
        assert_ptr_not_equal(other, piece);
        give(&arena, other, sizes[i]);
        give(&arena, again, sizes[i]);
    }
    vpmm_arena_destroy(&arena);
}

/* What a little use of a large piece may take: huge pages at its ends, and the first pages. */
#define LEFT_BYTES (3 * (2 * MIB))

static void what_was_never_touched_of_a_large_piece_takes_no_memory(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    struct stat after;
    make(&arena, BYTES);
    unsigned char *piece = take(&arena, 32 * MIB);
    piece[0] = piece[32 * MIB - 1] = 1;
    give(&arena, piece, 32 * MIB);
    assert_int_equal(fstat(arena.fd, &after), 0);
    assert_true(after.st_blocks <= (blkcnt_t)(LEFT_BYTES / 512));
    assert_ptr_equal(take(&arena, 32 * MIB), piece);
    assert_true(is_zero(piece, 32 * MIB));
    vpmm_arena_destroy(&arena);
}

/* The descriptor's number may mean another file by then, with other holes. */
static void large_pieces_are_zeroed_whatever_became_of_the_descriptor(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, BYTES);
    unsigned char *piece = take(&arena, 4 * MIB);
    memset(piece, 1, 4 * MIB);
    int other = memfd_create("other", MFD_CLOEXEC);
    assert_true(other >= 0 && ftruncate(other, (off_t)BYTES) == 0);
    assert_int_equal(dup2(other, arena.fd), arena.fd);
    give(&arena, piece, 4 * MIB);
    assert_ptr_equal(take(&arena, 4 * MIB), piece);
    assert_true(is_zero(piece, 4 * MIB));
    (void)close(other);
    (void)close(arena.fd);
    vpmm_arena_destroy(&arena);
}

/* By the descriptor, or by a new one of the same file, as another process would get it. */
static void nobody_else_can_write_to_it(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    char path[64];
    const char byte = 1;
    make(&arena, BYTES);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", arena.fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    for (int fd = arena.fd; fd >= 0; fd = fd == arena.fd ? again : -1) {
        assert_int_equal(pwrite(fd, &byte, 1, 0), -1);
        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(mapped == MAP_FAILED);
        mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        assert_true(mapped != MAP_FAILED);
        assert_int_equal(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), -1);
        (void)munmap(mapped, 4096);
    }
    /* It still grows for its own process. */
    for (unsigned i = 0; i < 8; i++)
        memset(take(&arena, MIB), 1, MIB);
    if (again >= 0)
        (void)close(again);
    vpmm_arena_destroy(&arena);
}

/* Locked pages cannot be given back. */
static void locked_pieces_are_zeroed_too(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, BYTES);
    unsigned char *piece = take(&arena, MIB);
    memset(piece, 1, MIB);
    if (mlock(piece, MIB) == 0) {
        give(&arena, piece, MIB);
        assert_ptr_equal(take(&arena, MIB), piece);
        assert_true(is_zero(piece, MIB));
    }
    vpmm_arena_destroy(&arena);
}

static void what_does_not_fit_is_the_systems_memory(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, MIB);
    unsigned char *inside = take(&arena, MIB / 2);
    assert_true(is_inside(&arena, inside));
    assert_null(take(&arena, SIZE_MAX / 2));
    assert_int_equal(vpmm_atomic_load(&arena.header->has_spilled), 0);
    unsigned char *outside = take(&arena, MIB);
    assert_non_null(outside);
    assert_false(is_inside(&arena, outside));
    assert_true(is_zero(outside, MIB));
    assert_int_equal(vpmm_atomic_load(&arena.header->has_spilled), 1);
    give(&arena, outside, MIB);
    give(&arena, inside, MIB / 2);
    assert_ptr_equal(take(&arena, MIB / 2), inside);
    vpmm_arena_destroy(&arena);
}

/* Nothing but used pages can be locked, dumped or touched. */
static void what_was_not_handed_out_cannot_be_touched(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, BYTES);
    char *end = (char *)arena.header + vpmm_atomic_load(&arena.header->used_bytes);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], end, 1), -1);
    assert_int_equal(errno, EFAULT);
    (void)close(ends[0]);
    (void)close(ends[1]);
    vpmm_arena_destroy(&arena);
}

struct worker {
    struct vpmm_arena *arena;
    unsigned char byte;
    bool was_right;
};

static void *work(void *self)
{
    struct worker *worker = self;
    worker->was_right = true;
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t bytes = (size_t)64 << i % 12;
        unsigned char *piece = take(worker->arena, bytes);
        worker->was_right &= piece && is_zero(piece, bytes);
        memset(piece, worker->byte, bytes);
        for (size_t k = 0; k < bytes; k++)
            worker->was_right &= piece[k] == worker->byte;
        give(worker->arena, piece, bytes);
    }
    return NULL;
}

static void threads_have_pieces_of_their_own(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    make(&arena, BYTES);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){&arena, (unsigned char)(i + 1), false};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].was_right);
    }
    assert_int_equal(vpmm_atomic_load(&arena.header->has_spilled), 0);
    vpmm_arena_destroy(&arena);
}

/* ---- what readers find ---- */

static void the_first_page_tells_a_reader(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    struct vpmm_arena_header seen;
    char path[64], link[64];
    int root;
    make(&arena, BYTES);
    assert_int_equal(pread(arena.fd, &seen, sizeof seen, 0), sizeof seen);
    assert_true(seen.magic == VPMM_ARENA_MAGIC);
    assert_string_equal(seen.version, "1.2.3");
    assert_int_equal(seen.layout, 4711);
    assert_ptr_equal(seen.address, arena.header);
    assert_int_equal(seen.bytes, BYTES);
    assert_int_equal(seen.pid, getpid());
    assert_string_equal(seen.program, program_invocation_short_name);
    assert_true(atomic_load(&seen.root) == NULL);
    vpmm_arena_publish(&arena, &root);
    assert_int_equal(pread(arena.fd, &seen, sizeof seen, 0), sizeof seen);
    assert_ptr_equal(atomic_load(&seen.root), &root);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", arena.fd);
    ssize_t n = readlink(path, link, sizeof link - 1);
    assert_true(n > 0);
    link[n] = 0;
    assert_string_equal(link, VPMM_ARENA_LINK);
    vpmm_arena_destroy(&arena);
}

/* Nobody can make it shorter, and it is in nobody's way. */
static void the_file_stays_as_it_is(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, BYTES);
    assert_int_not_equal(ftruncate(arena.fd, 0), 0);
    assert_true(arena.fd > STDERR_FILENO);
    assert_true(fcntl(arena.fd, F_GETFD) & FD_CLOEXEC);
    vpmm_arena_destroy(&arena);
}

static void a_descriptor_that_became_anothers_is_left_alone(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    make(&arena, BYTES);
    int fd = arena.fd;
    assert_int_equal(dup2(STDIN_FILENO, fd), fd);
    unsigned char *piece = take(&arena, MIB);
    assert_true(is_inside(&arena, piece) && is_zero(piece, MIB));
    vpmm_arena_destroy(&arena);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    (void)close(fd);
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    struct vpmm_arena arena;
    unsigned before = count_descriptors();
    make(&arena, BYTES);
    void *header = arena.header;
    assert_int_equal(count_descriptors(), before + 1);
    vpmm_arena_destroy(&arena);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(msync(header, 1, MS_ASYNC), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_pages_of_one_file),
        cmocka_unit_test(what_is_given_back_is_used_again_and_zeroed),
        cmocka_unit_test(what_was_never_touched_of_a_large_piece_takes_no_memory),
        cmocka_unit_test(large_pieces_are_zeroed_whatever_became_of_the_descriptor),
        cmocka_unit_test(nobody_else_can_write_to_it),
        cmocka_unit_test(locked_pieces_are_zeroed_too),
        cmocka_unit_test(what_does_not_fit_is_the_systems_memory),
        cmocka_unit_test(what_was_not_handed_out_cannot_be_touched),
        cmocka_unit_test(threads_have_pieces_of_their_own),
        cmocka_unit_test(the_first_page_tells_a_reader),
        cmocka_unit_test(the_file_stays_as_it_is),
        cmocka_unit_test(a_descriptor_that_became_anothers_is_left_alone),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
