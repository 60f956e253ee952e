/* SPDX-License-Identifier: MIT */
/* What tests of the recorder share: a file of their own, entries that tell who wrote them, and a
 * look at the file as any other program would have it. */
#ifndef TEST_RECORDER_TRACE_H
#define TEST_RECORDER_TRACE_H

#include "recorder/recorder.h"

#include <stdbool.h>
#include <stddef.h>

#define WRITERS_MAX 8

/* A file of the test, as it is now. */
struct trace {
    unsigned char *bytes;
    size_t n_bytes;
    const struct vpmm_trace_header *header;
    uint64_t n_entries;
    /* Of each writer the entries found, in the order of the file's chunks, and whether they are
     * numbered from 0 on without a gap. */
    uint64_t n_of[WRITERS_MAX];
    bool is_whole[WRITERS_MAX];
};

/* Before the first and after the last test. */
int trace_begin(void **state);
int trace_end(void **state);

/* The path of a file named `name` in a new folder; valid until the next call. */
const char *trace_path(const char *name);

/* Opens it; fails the test where it cannot be. */
void trace_open(struct vpmm_recorder *recorder, const char *path, uint64_t max_bytes);

/* Entry `number` of `writer`. */
void trace_write(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *own, unsigned writer,
                 uint64_t number);

/* Reads the whole file; fails the test where it is no trace. */
void trace_read(struct trace *trace, const char *path);
void trace_forget(struct trace *trace);

/* The tests of test_file.c. */
void old_files_make_way(void **state);
void a_trace_that_came_meanwhile_stays(void **state);
void a_link_stays_a_link(void **state);
void what_is_no_trace_stays(void **state);
void old_files_survive_a_refusal(void **state);
void low_descriptors_are_left_to_the_program(void **state);
void what_cannot_be_recorded_into_is_named(void **state);
void a_file_system_that_writes_elsewhere_is_refused(void **state);
void no_more_is_mapped_than_there_is(void **state);
void two_do_not_record_into_one_file(void **state);
void a_strangers_file_is_left_alone(void **state);
void a_lost_file_ends_the_recording(void **state);
void a_limit_on_files_ends_the_recording(void **state);

/* Those of test_threads.c. */
void short_threads_share_chunks(void **state);
void living_threads_share_no_chunk(void **state);
void a_cancelled_thread_keeps_nobody_waiting(void **state);
void what_is_no_chunk_any_more_is_not_gone_on_with(void **state);

/* Those of test_clock.c. */
void time_is_the_systems(void **state);
void time_is_the_systems_without_a_counter(void **state);
void a_slow_look_is_not_used(void **state);

#endif
