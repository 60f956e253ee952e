/* SPDX-License-Identifier: MIT */
/* What threads that ended left of their chunks is used, and nothing of the living ones. */
#define _GNU_SOURCE
#include "trace.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT 10000u
#define AT_ONCE 8u

/* Ten entries of two threads would have room in each chunk that these leave unused. */
#define BYTES_MOST ((size_t)4 << 20)

static struct vpmm_recorder recorder;
static uint64_t thread_of[SHORT];
static unsigned n_seen[SHORT];
static pthread_barrier_t barrier;

static void *write_one(void *number)
{
    struct vpmm_recorder_writer writer = {0};
    uint64_t n = (uintptr_t)number;
    thread_of[n] = (uint64_t)syscall(SYS_gettid);
    trace_write(&recorder, &writer, 0, n);
    return NULL;
}

static void write_in_turn(void)
{
    pthread_t threads[AT_ONCE];
    for (uintptr_t n = 0; n < SHORT; n += AT_ONCE) {
        for (uintptr_t i = 0; i < AT_ONCE; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, write_one, (void *)(n + i)), 0);
        for (unsigned i = 0; i < AT_ONCE; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* Counts each entry once for the thread that wrote it. */
static void look_at_threads(const struct trace *trace)
{
    memset(n_seen, 0, sizeof n_seen);
    for (uint64_t number = 0; number < trace->header->n_chunks; number++) {
        const struct vpmm_trace_chunk *chunk =
            (const void *)(trace->bytes + VPMM_TRACE_HEADER_BYTES +
                           (size_t)number * VPMM_TRACE_CHUNK_BYTES);
        const struct vpmm_trace_entry *entries = (const void *)(chunk + 1);
        uint64_t thread = chunk->thread;
        for (uint32_t i = 0; i < chunk->n_entries; i++) {
            if (entries[i].kind == VPMM_TRACE_THREAD) {
                thread = entries[i].address;
                continue;
            }
            assert_in_range(entries[i].address, 0, SHORT - 1);
            n_seen[entries[i].address] += thread == thread_of[entries[i].address];
        }
    }
}

void short_threads_share_chunks(void **state)
{
    (void)state;
    struct trace trace;
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    write_in_turn();
    vpmm_recorder_end(&recorder);
    trace_read(&trace, path);
    assert_int_equal(trace.header->dropped, 0);
    assert_int_equal(trace.n_entries, SHORT);
    assert_in_range(trace.n_bytes, SHORT * sizeof(struct vpmm_trace_entry), BYTES_MOST);
    look_at_threads(&trace);
    for (unsigned n = 0; n < SHORT; n++)
        assert_int_equal(n_seen[n], 1);
    trace_forget(&trace);
    vpmm_recorder_forget(&recorder);
}

/* Each is still there when the others begin. */
static void *write_beside_others(void *number)
{
    struct vpmm_recorder_writer writer = {0};
    unsigned own = (unsigned)(uintptr_t)number;
    uint64_t n = 0;
    for (unsigned turn = 0; turn < 3 * AT_ONCE; turn++) {
        if (turn % AT_ONCE == own)
            trace_write(&recorder, &writer, own, n++);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

void living_threads_share_no_chunk(void **state)
{
    (void)state;
    struct trace trace;
    pthread_t threads[AT_ONCE];
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, AT_ONCE), 0);
    for (uintptr_t i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_beside_others, (void *)i), 0);
    for (unsigned i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)pthread_barrier_destroy(&barrier);
    vpmm_recorder_end(&recorder);
    trace_read(&trace, path);
    assert_int_equal(trace.n_entries, 3 * AT_ONCE);
    for (unsigned i = 0; i < AT_ONCE; i++)
        assert_true(trace.is_whole[i]);
    trace_forget(&trace);
    vpmm_recorder_forget(&recorder);
}

/* Nothing of its own is on its stack: who ends here would leave that marked for the address
 * sanitizer, and the stack goes to another thread. */
static void *write_cancelled(void *unused)
{
    static struct vpmm_recorder_writer writer;
    (void)unused;
    (void)pthread_cancel(pthread_self());
    trace_write(&recorder, &writer, 1, 0);
    pthread_testcancel();
    return NULL;
}

/* It makes the first room in the file, which calls that end a cancelled thread do. */
void a_cancelled_thread_keeps_nobody_waiting(void **state)
{
    (void)state;
    struct trace trace;
    struct vpmm_recorder_writer writer = {0};
    void *result;
    pthread_t thread;
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    assert_int_equal(pthread_create(&thread, NULL, write_cancelled, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    trace_write(&recorder, &writer, 0, 0);
    vpmm_recorder_end(&recorder);
    trace_read(&trace, path);
    assert_int_equal(trace.header->dropped, 0);
    assert_int_equal(trace.n_of[0], 1);
    assert_int_equal(trace.n_of[1], 1);
    assert_int_equal(trace.header->is_ended, 1);
    trace_forget(&trace);
    vpmm_recorder_forget(&recorder);
}

static void write_one_in_a_thread(uintptr_t number)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_one, (void *)number), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Somebody else wrote into the file: no count in it may lead out of its chunk. */
void what_is_no_chunk_any_more_is_not_gone_on_with(void **state)
{
    static const uint32_t counts[] = {407, 408, 409, UINT32_MAX - 1, UINT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct trace trace;
        const char *path = trace_path("t.trace");
        trace_open(&recorder, path, 0);
        write_one_in_a_thread(0);
        struct vpmm_trace_chunk *chunk =
            (void *)((char *)recorder.header + VPMM_TRACE_HEADER_BYTES);
        chunk->n_entries = counts[i];
        for (uintptr_t n = 1; n < 20; n++)
            write_one_in_a_thread(n);
        assert_int_equal(chunk->n_entries, counts[i]);
        chunk->n_entries = 1;
        vpmm_recorder_end(&recorder);
        trace_read(&trace, path);
        assert_int_equal(trace.n_entries, 20);
        trace_forget(&trace);
        vpmm_recorder_forget(&recorder);
    }
}
