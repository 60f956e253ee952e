/* SPDX-License-Identifier: MIT */
/* This library's own form: several threads, a process that still writes, and damage. */
#define _GNU_SOURCE
#include "files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof(array)[0])

static struct vpmm_trace_entry entry(enum vpmm_trace_kind kind, uint64_t ns, uint32_t duration_ns,
                                     uint64_t address, uint64_t bytes)
{
    return (struct vpmm_trace_entry){.kind = (uint8_t)kind,
                                     .ns = ns,
                                     .duration_ns = duration_ns,
                                     .address = address,
                                     .bytes = bytes};
}

static int two_threads(const struct vpmm_trace_entry *first, size_t n_first,
                       const struct vpmm_trace_entry *second, size_t n_second)
{
    int fd = file_make();
    file_put_header(fd, 2);
    file_put_chunk(fd, 0, 11, first, (uint32_t)n_first);
    file_put_chunk(fd, 1, 12, second, (uint32_t)n_second);
    return fd;
}

static void expect(struct vpmm_trace_reader *reader, enum vpmm_trace_kind kind, uint64_t thread,
                   uint64_t moment_ns)
{
    const struct vpmm_trace_item item = file_next(reader);
    assert_int_equal(item.entry.kind, kind);
    assert_int_equal(item.thread, thread);
    assert_int_equal(item.moment_ns, moment_ns);
}

/* The second thread asks before the first one frees, and gets the block that is freed. */
static void test_a_malloc_counts_when_it_ended_and_a_free_when_it_began(void **state)
{
    const struct vpmm_trace_entry first[] = {entry(VPMM_TRACE_MALLOC, 10, 5, 64, 8),
                                             entry(VPMM_TRACE_FREE, 30, 50, 64, 0)};
    const struct vpmm_trace_entry second[] = {entry(VPMM_TRACE_MALLOC, 20, 15, 64, 9),
                                              entry(VPMM_TRACE_FREE, 90, 1, 64, 0)};
    struct vpmm_trace_reader *reader =
        file_open(two_threads(first, 2, second, 2), VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    expect(reader, VPMM_TRACE_MALLOC, 11, 15);
    struct vpmm_trace_item item = file_next(reader);
    assert_true(item.thread == 11 && item.moment_ns == 30 && item.entry.bytes == 8);
    assert_true(item.is_known && !item.is_made_up);
    expect(reader, VPMM_TRACE_MALLOC, 12, 35);
    item = file_next(reader);
    assert_true(item.is_known && item.entry.bytes == 9);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* What happened inside of a free stands before it. */
static void test_entries_within_calls_are_put_in_order(void **state)
{
    const struct vpmm_trace_entry first[] = {
        entry(VPMM_TRACE_MALLOC, 0, 1, 64, 8),
        entry(VPMM_TRACE_UNMAP, 20, 5, 128, 8),
        entry(VPMM_TRACE_RELEASE, 30, 5, 128, 8),
        entry(VPMM_TRACE_FREE, 10, 40, 64, 8),
    };
    const struct vpmm_trace_entry second[] = {entry(VPMM_TRACE_MALLOC, 12, 1, 64, 8)};
    struct vpmm_trace_reader *reader =
        file_open(two_threads(first, 4, second, 1), VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    expect(reader, VPMM_TRACE_FREE, 11, 10);
    expect(reader, VPMM_TRACE_MALLOC, 12, 13);
    expect(reader, VPMM_TRACE_UNMAP, 11, 20);
    expect(reader, VPMM_TRACE_RELEASE, 11, 30);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* However much happened inside of a free, it comes before all that. */
static void test_a_free_comes_before_any_number_of_unmaps_within_it(void **state)
{
    struct vpmm_trace_entry first[202] = {entry(VPMM_TRACE_MALLOC, 0, 1, 64, 8)};
    const struct vpmm_trace_entry second[] = {entry(VPMM_TRACE_MALLOC, 30, 5, 64, 9)};
    (void)state;
    for (unsigned i = 1; i <= 200; i++)
        first[i] = entry(VPMM_TRACE_UNMAP, 20 + i, 1, 4096 + i, 8);
    first[201] = entry(VPMM_TRACE_FREE, 10, 400, 64, 8);
    struct vpmm_trace_reader *reader =
        file_open(two_threads(first, N(first), second, 1), VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    expect(reader, VPMM_TRACE_FREE, 11, 10);
    for (unsigned i = 1; i <= 200; i++) {
        expect(reader, VPMM_TRACE_UNMAP, 11, 20 + i);
        if (i != 15)
            continue;
        const struct vpmm_trace_item item = file_next(reader);
        assert_true(item.entry.kind == VPMM_TRACE_MALLOC && item.is_known && !item.is_made_up);
    }
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* What is of one moment stands as it does in the file, frees and mallocs alike. */
static void test_a_block_is_freed_and_served_within_one_moment(void **state)
{
    struct vpmm_trace_entry first[60];
    struct vpmm_trace_reader *reader;
    (void)state;
    for (unsigned i = 0; i < N(first); i++)
        first[i] = entry(i % 2 ? VPMM_TRACE_FREE : VPMM_TRACE_MALLOC, 7, 0, 64, 8);
    reader = file_open(two_threads(first, N(first), NULL, 0), VPMM_TRACE_FORM_UNKNOWN);
    for (unsigned i = 0; i < N(first); i++) {
        const struct vpmm_trace_item item = file_next(reader);
        assert_true(item.is_known && !item.is_made_up);
        assert_int_equal(item.entry.kind, first[i].kind);
    }
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_frees_that_are_missing_are_made_up(void **state)
{
    const struct vpmm_trace_entry first[] = {
        entry(VPMM_TRACE_FREE, 1, 0, 96, 0),   entry(VPMM_TRACE_MALLOC, 2, 0, 64, 8),
        entry(VPMM_TRACE_MALLOC, 3, 0, 64, 9), entry(VPMM_TRACE_FREE, 4, 0, 64, 0),
        entry(VPMM_TRACE_FREE, 5, 0, 64, 0),
    };
    struct vpmm_trace_reader *reader =
        file_open(two_threads(first, N(first), NULL, 0), VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    assert_false(file_next(reader).is_known);
    assert_true(file_next(reader).is_known);
    struct vpmm_trace_item item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_FREE && item.is_made_up && item.is_known);
    assert_true(item.entry.bytes == 8 && item.moment_ns == 3);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_MALLOC && item.is_known && item.entry.bytes == 9);
    assert_true(file_next(reader).is_known);
    assert_false(file_next(reader).is_known);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_a_failed_malloc_is_not_live(void **state)
{
    struct vpmm_trace_entry first[] = {entry(VPMM_TRACE_MALLOC, 1, 0, 0, UINT64_MAX)};
    first[0].flags = VPMM_TRACE_IS_FAILED;
    struct vpmm_trace_reader *reader =
        file_open(two_threads(first, 1, NULL, 0), VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    const struct vpmm_trace_item item = file_next(reader);
    assert_true(!item.is_known && item.entry.bytes == UINT64_MAX);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* A chunk that was given out and not begun is no damage, and may be there later. */
static void test_a_process_may_still_write(void **state)
{
    const struct vpmm_trace_entry entries[] = {entry(VPMM_TRACE_MALLOC, 1, 0, 64, 8),
                                               entry(VPMM_TRACE_FREE, 2, 0, 64, 0)};
    /* Of a call that began before what was read, and has ended since. */
    const struct vpmm_trace_entry before = entry(VPMM_TRACE_FREE, 0, 9, 96, 0);
    int fd = file_make(), other = dup(fd);
    file_put_header(fd, 3);
    file_put_chunk(fd, 0, 11, entries, 1);
    file_put_chunk(fd, 1, 12, entries, 0);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    assert_false(vpmm_trace_reader_facts(reader).is_ended);
    assert_string_equal(vpmm_trace_reader_facts(reader).program, "program");
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    file_end(reader, NULL);
    file_put_chunk(other, 1, 12, &before, 1);
    file_put_chunk(other, 2, 11, entries + 1, 1);
    close(other);
    assert_true(vpmm_trace_rewind(reader));
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_a_thread_goes_on_in_its_later_chunks(void **state)
{
    enum {
        ENTRIES = 300
    };
    struct vpmm_trace_entry entries[ENTRIES];
    int fd = file_make();
    file_put_header(fd, 3);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        for (uint32_t i = 0; i < ENTRIES; i++)
            entries[i] =
                entry(VPMM_TRACE_MALLOC, chunk * ENTRIES + i, 0, 1 + chunk * ENTRIES + i, 1);
        file_put_chunk(fd, chunk, 11, entries, ENTRIES);
    }
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    for (unsigned i = 0; i < 3 * ENTRIES; i++)
        expect(reader, VPMM_TRACE_MALLOC, 11, i);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* ---- damage ---- */

static void test_a_cut_is_told_after_what_is_there(void **state)
{
    const struct vpmm_trace_entry entries[] = {entry(VPMM_TRACE_MALLOC, 1, 0, 64, 8),
                                               entry(VPMM_TRACE_MALLOC, 2, 0, 128, 8)};
    (void)state;
    int fd = two_threads(entries, 1, entries + 1, 1);
    assert_int_equal(ftruncate(fd, VPMM_TRACE_HEADER_BYTES + VPMM_TRACE_CHUNK_BYTES + 20), 0);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    file_end(reader, "it is cut off in chunk 1 of 2");
    vpmm_trace_close(reader);
    fd = two_threads(entries, 1, entries + 1, 1);
    assert_int_equal(ftruncate(fd, VPMM_TRACE_HEADER_BYTES + VPMM_TRACE_CHUNK_BYTES + 70), 0);
    reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    file_end(reader, "it is cut off in chunk 1 of 2");
    vpmm_trace_close(reader);
}

static void share(int fd, uint32_t number)
{
    static const uint32_t is_shared = 1;
    file_write(fd,
               VPMM_TRACE_HEADER_BYTES + (uint64_t)number * VPMM_TRACE_CHUNK_BYTES +
                   offsetof(struct vpmm_trace_chunk, is_shared),
               &is_shared, sizeof is_shared);
}

static void test_threads_go_on_with_a_chunk_in_turn(void **state)
{
    const struct vpmm_trace_entry first[] = {
        entry(VPMM_TRACE_MALLOC, 10, 0, 64, 8),  entry(VPMM_TRACE_THREAD, 20, 0, 13, 0),
        entry(VPMM_TRACE_MALLOC, 20, 0, 128, 8), entry(VPMM_TRACE_THREAD, 25, 0, 14, 0),
        entry(VPMM_TRACE_THREAD, 30, 0, 13, 0),  entry(VPMM_TRACE_FREE, 50, 0, 64, 0)};
    const struct vpmm_trace_entry second[] = {entry(VPMM_TRACE_MALLOC, 15, 0, 256, 8),
                                              entry(VPMM_TRACE_FREE, 40, 0, 128, 0)};
    (void)state;
    int fd = two_threads(first, N(first), second, N(second));
    share(fd, 0);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 10);
    expect(reader, VPMM_TRACE_MALLOC, 12, 15);
    expect(reader, VPMM_TRACE_MALLOC, 13, 20);
    expect(reader, VPMM_TRACE_FREE, 12, 40);
    expect(reader, VPMM_TRACE_FREE, 13, 50);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* A thread that has the number of an earlier one goes on with a chunk that is older than that
 * one's. */
static void test_a_thread_with_a_used_number_comes_after_the_first(void **state)
{
    enum {
        n = 200
    };
    struct vpmm_trace_entry older[n + 2], newer[n];
    (void)state;
    older[0] = entry(VPMM_TRACE_MALLOC, 1, 0, 64, 8);
    older[1] = entry(VPMM_TRACE_THREAD, 2000, 0, 12, 0);
    for (unsigned i = 0; i < n; i++) {
        newer[i] = entry(VPMM_TRACE_HOST_WAIT, 1000 + i, 0, 0, 0);
        older[i + 2] = entry(VPMM_TRACE_HOST_WAIT, 2000 + i, 0, 0, 0);
    }
    int fd = two_threads(older, N(older), newer, N(newer));
    share(fd, 0);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    for (unsigned i = 0; i < 2 * n; i++)
        expect(reader, VPMM_TRACE_HOST_WAIT, 12, (i < n ? 1000 : 2000) + i % n);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_a_cut_in_a_shared_chunk_is_told(void **state)
{
    struct vpmm_trace_entry entries[100];
    (void)state;
    for (unsigned i = 0; i < N(entries); i++)
        entries[i] = entry(i == 1 ? VPMM_TRACE_THREAD : VPMM_TRACE_HOST_WAIT, i, 0, 12, 0);
    int fd = file_make();
    file_put_header(fd, 1);
    file_put_chunk(fd, 0, 11, entries, N(entries));
    share(fd, 0);
    assert_int_equal(ftruncate(fd, VPMM_TRACE_HEADER_BYTES + 64 + 70 * 40), 0);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_HOST_WAIT, 11, 0);
    for (unsigned i = 2; i < 70; i++)
        expect(reader, VPMM_TRACE_HOST_WAIT, 12, i);
    file_end(reader, "it is cut off in chunk 0 of 1");
    vpmm_trace_close(reader);
}

static void test_files_of_the_first_version_are_read(void **state)
{
    const struct vpmm_trace_entry entries[] = {entry(VPMM_TRACE_MALLOC, 1, 0, 64, 8)};
    const uint32_t version = 1;
    (void)state;
    int fd = two_threads(entries, 1, NULL, 0);
    file_write(fd, 8, &version, sizeof version);
    struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    expect(reader, VPMM_TRACE_MALLOC, 11, 1);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_counts_and_kinds_that_cannot_be_are_told(void **state)
{
    const struct vpmm_trace_entry wrong[] = {entry(VPMM_TRACE_KINDS, 1, 0, 64, 8)};
    const struct vpmm_trace_entry unshared[] = {entry(VPMM_TRACE_THREAD, 1, 0, 12, 0)};
    const uint32_t n_wrong = 409;
    (void)state;
    struct vpmm_trace_reader *reader =
        file_open(two_threads(wrong, 1, NULL, 0), VPMM_TRACE_FORM_UNKNOWN);
    file_end(reader, "thread 11 has an entry that cannot be, of kind 14");
    vpmm_trace_close(reader);
    reader = file_open(two_threads(unshared, 1, NULL, 0), VPMM_TRACE_FORM_UNKNOWN);
    file_end(reader, "thread 11 has an entry that cannot be, of kind 10");
    vpmm_trace_close(reader);
    int fd = two_threads(wrong, 0, NULL, 0);
    file_write(fd, VPMM_TRACE_HEADER_BYTES + 4, &n_wrong, sizeof n_wrong);
    reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    file_end(reader, "chunk 0 has more entries than it can have");
    vpmm_trace_close(reader);
    fd = two_threads(wrong, 0, NULL, 0);
    file_write(fd, VPMM_TRACE_HEADER_BYTES, "junk", 4);
    reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
    file_end(reader, "chunk 0 does not begin as a chunk does");
    vpmm_trace_close(reader);
}

static void test_a_header_that_cannot_be_is_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
        const char *message;
    } cases[] = {
        {8, 0, "file: its layout is version 0; this reads versions 1 to 3"},
        {8, 4, "file: its layout is version 4; this reads versions 1 to 3"},
        {12, 16, "file: its header gives sizes that cannot be"},
        {16, 64, "file: its header gives sizes that cannot be"},
        {16, UINT32_MAX, "file: its header gives sizes that cannot be"},
        {20, 0, "file: its header gives sizes that cannot be"},
    };
    char message[256];
    struct vpmm_trace_reader *reader;
    (void)state;
    for (unsigned i = 0; i < N(cases); i++) {
        int fd = file_make();
        file_put_header(fd, 0);
        file_write(fd, cases[i].at, &cases[i].value, sizeof cases[i].value);
        assert_int_equal(vpmm_trace_open_fd(fd, "file", VPMM_TRACE_FORM_VPMM, &reader, message),
                         VPMM_INVALID);
        assert_string_equal(message, cases[i].message);
        close(fd);
    }
    int fd = file_of_text(VPMM_TRACE_MAGIC);
    assert_int_equal(vpmm_trace_open_fd(fd, "file", VPMM_TRACE_FORM_UNKNOWN, &reader, message),
                     VPMM_INVALID);
    assert_string_equal(message, "file: it is cut off in its header");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_malloc_counts_when_it_ended_and_a_free_when_it_began),
        cmocka_unit_test(test_entries_within_calls_are_put_in_order),
        cmocka_unit_test(test_a_free_comes_before_any_number_of_unmaps_within_it),
        cmocka_unit_test(test_a_block_is_freed_and_served_within_one_moment),
        cmocka_unit_test(test_frees_that_are_missing_are_made_up),
        cmocka_unit_test(test_a_failed_malloc_is_not_live),
        cmocka_unit_test(test_a_process_may_still_write),
        cmocka_unit_test(test_a_thread_goes_on_in_its_later_chunks),
        cmocka_unit_test(test_a_cut_is_told_after_what_is_there),
        cmocka_unit_test(test_threads_go_on_with_a_chunk_in_turn),
        cmocka_unit_test(test_a_thread_with_a_used_number_comes_after_the_first),
        cmocka_unit_test(test_a_cut_in_a_shared_chunk_is_told),
        cmocka_unit_test(test_files_of_the_first_version_are_read),
        cmocka_unit_test(test_counts_and_kinds_that_cannot_be_are_told),
        cmocka_unit_test(test_a_header_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
