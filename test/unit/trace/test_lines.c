/* SPDX-License-Identifier: MIT */
/* The forms that are lines: CSV and RMM's log. */
#define _GNU_SOURCE
#include "files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static void test_csv_items_are_as_they_stand(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("# a comment\n\nA,302000000,262144,ab,12,a\r\nK,ab,13,5000000\n"
                               "E,7,ab,14\nW,7,0,15\nF,302000000,,cd,16,s\n"),
                  VPMM_TRACE_FORM_UNKNOWN);
    struct vpmm_trace_item item = file_next(reader);
    (void)state;
    assert_int_equal(vpmm_trace_reader_facts(reader).form, VPMM_TRACE_FORM_CSV);
    assert_int_equal(item.entry.kind, VPMM_TRACE_MALLOC);
    assert_true(item.is_known && item.entry.address == 0x302000000 && item.entry.bytes == 262144);
    assert_true(item.entry.stream == 0xab && item.entry.ns == 12000 && item.moment_ns == 12000);
    assert_int_equal(item.entry.flags, VPMM_TRACE_IS_ASYNC);
    item = file_next(reader);
    assert_int_equal(item.entry.kind, VPMM_TRACE_KERNEL);
    assert_true(item.entry.bytes == 5000000000 && item.entry.duration_ns == UINT32_MAX);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_RECORD && item.entry.address == 7);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_FOLLOW && item.entry.stream == 0);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_FREE && item.is_known && !item.is_made_up);
    assert_true(item.entry.bytes == 262144 && item.entry.stream == 0xcd && !item.entry.flags);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_time_never_falls(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("A,10,1,0,9,a\nA,20,1,0,3,a\n"), VPMM_TRACE_FORM_CSV);
    (void)state;
    assert_int_equal(file_next(reader).moment_ns, 9000);
    assert_int_equal(file_next(reader).moment_ns, 9000);
    vpmm_trace_close(reader);
}

static void test_a_bad_line_is_named(void **state)
{
    static const struct {
        const char *line, *complaint;
    } cases[] = {
        {"X,1,2,3,4,a", "it begins with none of A, F, K, E, W and #"},
        {"AB,1,2,3,4,a", "it begins with none of A, F, K, E, W and #"},
        {"A,1,2,3,4", "it has not six fields"},
        {"A,1,2,3,4,a,b", "it has not six fields"},
        {"K,1,2", "it has not four fields"},
        {"A,0,2,3,4,a", "the address is not a hexadecimal number above 0"},
        {"A,g,2,3,4,a", "the address is not a hexadecimal number above 0"},
        {"A,1ffffffffffffffff,2,3,4,a", "the address is not a hexadecimal number above 0"},
        {"A,1,-2,3,4,a", "the size is not a number of bytes"},
        {"A,1,,3,4,a", "the size is not a number of bytes"},
        {"A,1,99999999999999999999,3,4,a", "the size is not a number of bytes"},
        {"A,1,2x,3,4,a", "the size is not a number of bytes"},
        {"A,1,1152921504606846976,3,4,a", "the size is not a number of bytes"},
        {"A,1,2, 3,4,a", "the stream is not a hexadecimal number"},
        {"A,1,2,3,x,a", "the time is not a number of microseconds"},
        {"A,1,2,3,1152921504606847,a", "the time is not a number of microseconds"},
        {"A,1,2,3,4,q", "the kind is none of s, a and p"},
        {"A,1,2,3,4,", "the kind is none of s, a and p"},
        {"K,1,2,1152921504606847", "the duration is not a number of microseconds"},
        {"K,1,2,y", "the duration is not a number of microseconds"},
        {"E,y,2,3", "the event is not a hexadecimal number"},
        {"A,30,2,3,4,a", "the address is allocated already"},
        {"F,40,,3,4,a", "the address is freed while it is not allocated"},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128] = "A,30,1,0,1,a\n", damage[128] = "line 2: ";
        strcat(strcat(text, cases[i].line), "\n");
        struct vpmm_trace_reader *reader = file_open(file_of_text(text), VPMM_TRACE_FORM_UNKNOWN);
        file_next(reader);
        file_end(reader, strcat(damage, cases[i].complaint));
        vpmm_trace_close(reader);
    }
}

static void test_a_line_that_is_too_long_is_named(void **state)
{
    char text[6000];
    (void)state;
    memset(text, '#', sizeof text);
    text[sizeof text - 1] = '\0';
    struct vpmm_trace_reader *reader = file_open(file_of_text(text), VPMM_TRACE_FORM_UNKNOWN);
    file_end(reader, "line 1: the line is too long");
    vpmm_trace_close(reader);
}

static void test_a_line_with_a_nul_is_no_text(void **state)
{
    static const char text[] = "A,30,1,0,1,a\nF,30,,0,2,a\0b\n";
    (void)state;
    for (size_t n = sizeof text - 1; n > sizeof text - 4; n--) {
        int fd = file_make();
        file_write(fd, 0, text, n);
        struct vpmm_trace_reader *reader = file_open(fd, VPMM_TRACE_FORM_UNKNOWN);
        file_next(reader);
        file_end(reader, "line 2: not text");
        vpmm_trace_close(reader);
    }
}

static int compressed(const char *text, size_t cut)
{
    unsigned char bytes[4096];
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)text,
                       .avail_in = (unsigned)strlen(text),
                       .next_out = bytes,
                       .avail_out = sizeof bytes};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t n = sizeof bytes - stream.avail_out;
    deflateEnd(&stream);
    int fd = file_make();
    file_write(fd, 0, bytes, n - cut);
    return fd;
}

static void test_compressed_lines_are_read_and_a_cut_is_told(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(compressed("A,30,1,0,1,a\nF,30,,0,2,a\n", 0), VPMM_TRACE_FORM_UNKNOWN);
    (void)state;
    for (unsigned pass = 0; pass < 2; pass++) {
        file_next(reader);
        file_next(reader);
        file_end(reader, NULL);
        assert_true(vpmm_trace_rewind(reader));
    }
    vpmm_trace_close(reader);
    reader = file_open(compressed("A,30,1,0,1,a\nF,30,,0,2,a\n", 8), VPMM_TRACE_FORM_UNKNOWN);
    file_next(reader);
    file_next(reader);
    file_end(reader, "line 3: the compressed data ends too early");
    vpmm_trace_close(reader);
}

static void test_rmm_items_are_as_they_stand(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("Thread,Time,Action,Pointer,Size,Stream\n"
                               "5,23:59:59.999999,allocate,0x30a000000,256,0x2\n"
                               "6,00:00:01.000000,free,0x30a000000,256,0x3\n"
                               "6,00:00:01:000001,allocate failure,(nil),99,0x0\n"
                               "6,00:00:01.000002,free,0x77,256,0x3\n"),
                  VPMM_TRACE_FORM_UNKNOWN);
    struct vpmm_trace_item item = file_next(reader);
    (void)state;
    assert_int_equal(vpmm_trace_reader_facts(reader).form, VPMM_TRACE_FORM_RMM);
    assert_true(item.thread == 5 && item.moment_ns == 0 && item.entry.stream == 2);
    assert_true(item.is_known && item.entry.address == 0x30a000000 && item.entry.bytes == 256);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_FREE && item.is_known);
    assert_int_equal(item.moment_ns, 1000001000);
    item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_MALLOC && !item.is_known);
    assert_true(item.entry.flags & VPMM_TRACE_IS_FAILED);
    assert_int_equal(item.moment_ns, 1000002000);
    assert_false(file_next(reader).is_known);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

/* Of another thread, with the time before midnight: the day does not turn again. */
static void test_a_late_line_of_rmm_at_midnight_is_of_no_day_to_come(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("1,23:59:59.000000,allocate,0x1,2,0x0\n"
                               "1,00:00:00.000010,allocate,0x2,2,0x0\n"
                               "2,23:59:59.999999,allocate,0x3,2,0x0\n"
                               "1,00:00:00.000020,allocate,0x4,2,0x0\n"),
                  VPMM_TRACE_FORM_RMM);
    (void)state;
    assert_int_equal(file_next(reader).moment_ns, 0);
    assert_int_equal(file_next(reader).moment_ns, 1000010000);
    assert_int_equal(file_next(reader).moment_ns, 1000010000);
    assert_int_equal(file_next(reader).moment_ns, 1000020000);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_rmm_frees_of_nothing_are_nothing(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("1,10:00:00.000001,free,(nil),0,(nil)\n"
                               "1,10:00:00.000002,allocate,0x0,0,0\n"
                               "1,10:00:00.000003,allocate,0x100,8,(nil)\n"),
                  VPMM_TRACE_FORM_RMM);
    (void)state;
    struct vpmm_trace_item item = file_next(reader);
    assert_true(item.entry.kind == VPMM_TRACE_MALLOC && !item.is_known);
    item = file_next(reader);
    assert_true(item.is_known && item.entry.address == 0x100 && item.entry.stream == 0);
    assert_int_equal(item.moment_ns, 2000);
    file_end(reader, NULL);
    vpmm_trace_close(reader);
}

static void test_rmm_times_are_not_years_apart(void **state)
{
    struct vpmm_trace_reader *reader =
        file_open(file_of_text("1,0000000000.000000,allocate,0x1,2,0x0\n"
                               "1,1152921504.606846,allocate,0x2,2,0x0\n"
                               "1,1152921504.606847,allocate,0x3,2,0x0\n"),
                  VPMM_TRACE_FORM_RMM);
    (void)state;
    file_next(reader);
    assert_int_equal(file_next(reader).moment_ns, 1152921504606846000);
    file_end(reader, "line 3: the time is too long after the first one");
    vpmm_trace_close(reader);
}

static void test_more_than_an_address_space_is_not_live(void **state)
{
    char text[1024] = "";
    (void)state;
    for (unsigned i = 0; i < 17; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "A,%x,1152921504606846975,0,1,a\n%s", 16 + i, i == 3 ? "F,13,,0,1,a\n" : "");
    strcat(text, "A,99,17,0,2,a\n");
    struct vpmm_trace_reader *reader = file_open(file_of_text(text), VPMM_TRACE_FORM_CSV);
    for (unsigned i = 0; i < 10; i++)
        file_next(reader);
    assert_true(vpmm_trace_rewind(reader));
    for (unsigned i = 0; i < 18; i++)
        file_next(reader);
    file_end(reader, "more is live at one time than an address space holds");
    vpmm_trace_close(reader);
}

static void test_a_bad_line_of_rmm_is_named(void **state)
{
    static const struct {
        const char *line, *complaint;
    } cases[] = {
        {"1,10:00:00.000000,allocate,0x1,2", "it has not six fields"},
        {"x,10:00:00.000000,allocate,0x1,2,0x0", "the thread is not a number"},
        {"1,10:00:00.00000,allocate,0x1,2,0x0", "the time is not of the form 14:21:19.998533"},
        {"1,25:00:00.000000,allocate,0x1,2,0x0", "the time is not of the form 14:21:19.998533"},
        {"1,10:00:00.000000,grab,0x1,2,0x0",
         "the action is none of allocate, allocate failure and free"},
        {"1,10:00:00.000000,allocate,pointer,2,0x0", "the pointer is not a hexadecimal number"},
        {"1,10:00:00.000000,allocate,0x1,two,0x0", "the size is not a number of bytes"},
        {"1,10:00:00.000000,allocate,0x1,1152921504606846976,0x0",
         "the size is not a number of bytes"},
        {"1,10:00:00.000000,allocate,0x1,2,", "the stream is not a number"},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char damage[128] = "line 1: ";
        struct vpmm_trace_reader *reader =
            file_open(file_of_text(cases[i].line), VPMM_TRACE_FORM_RMM);
        file_end(reader, strcat(damage, cases[i].complaint));
        vpmm_trace_close(reader);
    }
}

static void test_what_is_no_trace_is_refused(void **state)
{
    static const struct {
        const char *text;
        enum vpmm_status status;
    } cases[] = {{"", VPMM_INVALID},
                 {"PK\3\4", VPMM_INVALID},
                 {"{\"traceEvents\": []}", VPMM_INVALID},
                 {"\x80\2}q.", VPMM_NOT_SUPPORTED}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[256] = "";
        struct vpmm_trace_reader *reader;
        int fd = file_of_text(cases[i].text);
        assert_int_equal(
            vpmm_trace_open_fd(fd, "a\nname", VPMM_TRACE_FORM_UNKNOWN, &reader, message),
            cases[i].status);
        assert_memory_equal(message, "a?name: ", 8);
        close(fd);
    }
}

static void test_what_cannot_be_decompressed_is_not_empty(void **state)
{
    static const char text[] = "A,30,1,0,1,a\n";
    char message[256] = "";
    struct vpmm_trace_reader *reader;
    (void)state;
    int fd = compressed(text, 0);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(vpmm_trace_open_fd(fd, "cut", VPMM_TRACE_FORM_UNKNOWN, &reader, message),
                     VPMM_INVALID);
    close(fd);
    assert_string_equal(message, "cut: the compressed data ends too early");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv_items_are_as_they_stand),
        cmocka_unit_test(test_time_never_falls),
        cmocka_unit_test(test_a_bad_line_is_named),
        cmocka_unit_test(test_a_line_that_is_too_long_is_named),
        cmocka_unit_test(test_a_line_with_a_nul_is_no_text),
        cmocka_unit_test(test_compressed_lines_are_read_and_a_cut_is_told),
        cmocka_unit_test(test_rmm_items_are_as_they_stand),
        cmocka_unit_test(test_a_late_line_of_rmm_at_midnight_is_of_no_day_to_come),
        cmocka_unit_test(test_rmm_frees_of_nothing_are_nothing),
        cmocka_unit_test(test_rmm_times_are_not_years_apart),
        cmocka_unit_test(test_more_than_an_address_space_is_not_live),
        cmocka_unit_test(test_a_bad_line_of_rmm_is_named),
        cmocka_unit_test(test_what_is_no_trace_is_refused),
        cmocka_unit_test(test_what_cannot_be_decompressed_is_not_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
