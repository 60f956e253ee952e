/* SPDX-License-Identifier: MIT */
/* Nothing that was recorded is lost unless it is counted, whoever ends the process and when. */
#define _GNU_SOURCE
#include "trace.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vpmm/vpmm.h>

#include <cmocka.h>

#define WINDOW_ENTRIES ((uint64_t)64 * 408)

static void the_header_says_what_it_is(void **state)
{
    (void)state;
    struct vpmm_recorder recorder;
    struct trace trace;
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, (uint64_t)1 << 20);
    vpmm_recorder_end(&recorder);
    trace_read(&trace, path);
    assert_int_equal(trace.n_bytes, VPMM_TRACE_HEADER_BYTES);
    assert_int_equal(trace.header->version, VPMM_TRACE_VERSION_PLAIN);
    assert_int_equal(trace.header->header_bytes, VPMM_TRACE_HEADER_BYTES);
    assert_int_equal(trace.header->chunk_bytes, VPMM_TRACE_CHUNK_BYTES);
    assert_int_equal(trace.header->entry_bytes, sizeof(struct vpmm_trace_entry));
    assert_int_equal(trace.header->pid, getpid());
    assert_int_equal(trace.header->max_bytes, 1 << 20);
    assert_int_equal(trace.header->n_chunks, 0);
    assert_int_equal(trace.header->dropped, 0);
    assert_int_equal(trace.header->is_ended, 1);
    assert_string_equal(trace.header->program, "test");
    assert_string_equal(trace.header->vpmm_version, VPMM_VERSION);
    trace_forget(&trace);
    vpmm_recorder_forget(&recorder);
}

static void entries_of_a_thread_keep_their_order(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 407, 408, 409, WINDOW_ENTRIES, 3 * WINDOW_ENTRIES + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct vpmm_recorder recorder;
        struct vpmm_recorder_writer writer = {0};
        struct trace trace;
        const char *path = trace_path("t.trace");
        trace_open(&recorder, path, 0);
        for (uint64_t n = 0; n < counts[i]; n++)
            trace_write(&recorder, &writer, 0, n);
        vpmm_recorder_end(&recorder);
        trace_read(&trace, path);
        assert_int_equal(trace.n_entries, counts[i]);
        assert_true(trace.is_whole[0]);
        assert_int_equal(trace.header->dropped, 0);
        assert_int_equal(trace.header->n_chunks, (counts[i] + 407) / 408);
        assert_int_equal(trace.n_bytes,
                         VPMM_TRACE_HEADER_BYTES + trace.header->n_chunks * VPMM_TRACE_CHUNK_BYTES);
        trace_forget(&trace);
        vpmm_recorder_forget(&recorder);
    }
}

/* ---- several threads ---- */

#define THREADS 4

static struct vpmm_recorder shared;
static uint64_t n_each;
static vpmm_atomic32 may_begin;

static void *write_many(void *number)
{
    struct vpmm_recorder_writer writer = {0};
    while (!vpmm_atomic_load(&may_begin))
        (void)sched_yield();
    for (uint64_t n = 0; n < n_each; n++)
        trace_write(&shared, &writer, (unsigned)(uintptr_t)number, n);
    return NULL;
}

static void begin_threads(pthread_t threads[THREADS], uint64_t n)
{
    n_each = n;
    vpmm_atomic_store(&may_begin, 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, (void *)i), 0);
    vpmm_atomic_store(&may_begin, 1);
}

static void join_threads(const pthread_t threads[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct trace trace;
    const char *path = trace_path("t.trace");
    trace_open(&shared, path, 0);
    begin_threads(threads, 2 * WINDOW_ENTRIES);
    join_threads(threads);
    vpmm_recorder_end(&shared);
    trace_read(&trace, path);
    assert_int_equal(trace.header->dropped, 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(trace.n_of[i], n_each);
        assert_true(trace.is_whole[i]);
    }
    trace_forget(&trace);
    vpmm_recorder_forget(&shared);
}

static void what_finds_no_room_is_counted(void **state)
{
    (void)state;
    static const uint64_t maxima[] = {
        1,
        VPMM_TRACE_HEADER_BYTES,
        VPMM_TRACE_HEADER_BYTES + VPMM_TRACE_CHUNK_BYTES - 1,
        VPMM_TRACE_HEADER_BYTES + VPMM_TRACE_CHUNK_BYTES,
        1000000,
        (uint64_t)3 << 20,
    };
    for (size_t i = 0; i < sizeof maxima / sizeof *maxima; i++) {
        pthread_t threads[THREADS];
        struct trace trace;
        const char *path = trace_path("t.trace");
        uint64_t room = maxima[i] < VPMM_TRACE_HEADER_BYTES
                            ? 0
                            : (maxima[i] - VPMM_TRACE_HEADER_BYTES) / VPMM_TRACE_CHUNK_BYTES;
        trace_open(&shared, path, maxima[i]);
        begin_threads(threads, WINDOW_ENTRIES);
        join_threads(threads);
        vpmm_recorder_end(&shared);
        trace_read(&trace, path);
        assert_int_equal(trace.header->n_chunks, room);
        assert_int_equal(trace.n_bytes, VPMM_TRACE_HEADER_BYTES + room * VPMM_TRACE_CHUNK_BYTES);
        assert_int_equal(trace.n_entries, room * 408);
        assert_int_equal(trace.n_entries + trace.header->dropped, THREADS * n_each);
        trace_forget(&trace);
        vpmm_recorder_forget(&shared);
    }
}

static void threads_may_go_on_at_the_end(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[THREADS];
        struct trace trace;
        const char *path = trace_path("t.trace");
        trace_open(&shared, path, 0);
        begin_threads(threads, WINDOW_ENTRIES);
        while (vpmm_atomic_load(&shared.next) < (uint64_t)round * 10)
            (void)sched_yield();
        vpmm_recorder_end(&shared);
        join_threads(threads);
        trace_read(&trace, path);
        assert_int_equal(trace.header->is_ended, 1);
        assert_int_equal(trace.n_entries + trace.header->dropped, THREADS * n_each);
        for (int i = 0; i < THREADS; i++)
            assert_true(trace.is_whole[i]);
        trace_forget(&trace);
        vpmm_recorder_forget(&shared);
    }
}

/* ---- processes ---- */

/* What a process still records that is not killed at once: no more than there is room for. */
#define SURPLUS (16 * WINDOW_ENTRIES)

static void a_killed_process_leaves_what_it_recorded(void **state)
{
    (void)state;
    static const uint64_t least[] = {1, 408, 1000, 2 * WINDOW_ENTRIES};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        struct trace trace;
        const char *path = trace_path("t.trace");
        vpmm_atomic64 *done =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(done != MAP_FAILED);
        pid_t child = fork();
        if (child == 0) {
            struct vpmm_recorder recorder;
            struct vpmm_recorder_writer writer = {0};
            trace_open(&recorder, path, 0);
            for (uint64_t n = 0; n < least[i] + SURPLUS; n++) {
                trace_write(&recorder, &writer, 0, n);
                vpmm_atomic_store(done, n + 1);
            }
            for (;;)
                (void)pause();
        }
        while (vpmm_atomic_load(done) < least[i])
            (void)sched_yield();
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        trace_read(&trace, path);
        assert_int_equal(trace.header->is_ended, 0);
        assert_in_range(trace.n_entries, vpmm_atomic_load(done), vpmm_atomic_load(done) + 1);
        assert_true(trace.is_whole[0]);
        trace_forget(&trace);
        (void)munmap(done, 4096);
    }
}

static void a_forked_child_leaves_the_trace_to_its_parent(void **state)
{
    (void)state;
    struct vpmm_recorder recorder;
    struct vpmm_recorder_writer writer = {0};
    struct trace trace;
    int status;
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    trace_write(&recorder, &writer, 0, 0);
    pid_t child = fork();
    if (child == 0) {
        struct vpmm_recorder own;
        int fd = recorder.file.fd;
        vpmm_recorder_forget(&recorder);
        trace_open(&own, trace_path("child.trace"), 0);
        _exit(own.file.fd != fd);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (uint64_t n = 1; n < WINDOW_ENTRIES + 1; n++)
        trace_write(&recorder, &writer, 0, n);
    vpmm_recorder_end(&recorder);
    trace_read(&trace, path);
    assert_int_equal(trace.n_entries, WINDOW_ENTRIES + 1);
    assert_true(trace.is_whole[0]);
    trace_forget(&trace);
    vpmm_recorder_forget(&recorder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_says_what_it_is),
        cmocka_unit_test(entries_of_a_thread_keep_their_order),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(what_finds_no_room_is_counted),
        cmocka_unit_test(threads_may_go_on_at_the_end),
        cmocka_unit_test(a_killed_process_leaves_what_it_recorded),
        cmocka_unit_test(a_forked_child_leaves_the_trace_to_its_parent),
        cmocka_unit_test(short_threads_share_chunks),
        cmocka_unit_test(living_threads_share_no_chunk),
        cmocka_unit_test(what_is_no_chunk_any_more_is_not_gone_on_with),
        cmocka_unit_test(a_cancelled_thread_keeps_nobody_waiting),
        cmocka_unit_test(time_is_the_systems),
        cmocka_unit_test(time_is_the_systems_without_a_counter),
        cmocka_unit_test(a_slow_look_is_not_used),
        cmocka_unit_test(old_files_make_way),
        cmocka_unit_test(a_link_stays_a_link),
        cmocka_unit_test(what_is_no_trace_stays),
        cmocka_unit_test(old_files_survive_a_refusal),
        cmocka_unit_test(low_descriptors_are_left_to_the_program),
        cmocka_unit_test(what_cannot_be_recorded_into_is_named),
        cmocka_unit_test(a_file_system_that_writes_elsewhere_is_refused),
        cmocka_unit_test(no_more_is_mapped_than_there_is),
        cmocka_unit_test(two_do_not_record_into_one_file),
        cmocka_unit_test(a_trace_that_came_meanwhile_stays),
        cmocka_unit_test(a_strangers_file_is_left_alone),
        cmocka_unit_test(a_lost_file_ends_the_recording),
        cmocka_unit_test(a_limit_on_files_ends_the_recording),
    };
    return cmocka_run_group_tests(tests, trace_begin, trace_end);
}
