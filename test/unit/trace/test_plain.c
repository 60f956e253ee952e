/* SPDX-License-Identifier: MIT */
/* Readers and writers in a build without zlib: files are plain, and what gzip compressed is refused
 * with the reason. */
#define _GNU_SOURCE
#include "files.h"

#include "trace/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The header of a file that gzip compressed. */
static const unsigned char compressed[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};

static void compressed_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    char message[256] = "";
    struct vpmm_trace_reader *reader = NULL;
    int fd = file_make();
    file_write(fd, 0, compressed, sizeof compressed);
    assert_int_not_equal(vpmm_trace_open_fd(fd, "file", VPMM_TRACE_FORM_UNKNOWN, &reader, message),
                         VPMM_OK);
    assert_string_equal(message, "file: this vpmm was built without zlib, and has no gzip");
    assert_int_equal(vpmm_trace_plain(fd), -1);
    assert_int_equal(errno, ENOTSUP);
    close(fd);
}

static void compressed_files_are_not_written(void **state)
{
    (void)state;
    char message[256] = "";
    struct vpmm_trace_writer *writer = NULL;
    const struct vpmm_trace_facts facts = {.program = ""};
    const char *path = "/tmp/vpmm-test-plain.csv.gz";
    assert_int_equal(vpmm_trace_create(path, VPMM_TRACE_FORM_CSV, &facts, &writer, message),
                     VPMM_NOT_FOUND);
    assert_non_null(strstr(message, "this vpmm was built without zlib"));
    assert_int_equal(access(path, F_OK), -1);
}

static void plain_files_are_read(void **state)
{
    (void)state;
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("A,1000,4096,0,1,s\nF,1000,,0,2,s\n"), VPMM_TRACE_FORM_UNKNOWN);
    assert_int_equal(file_next(reader).entry.bytes, 4096);
    assert_int_equal(file_next(reader).entry.kind, VPMM_TRACE_FREE);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_files_are_refused_with_the_reason),
        cmocka_unit_test(compressed_files_are_not_written),
        cmocka_unit_test(plain_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
