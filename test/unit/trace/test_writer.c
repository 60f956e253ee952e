/* SPDX-License-Identifier: MIT */
/* How a file comes into its place, and what forms have no place for. What is in the files,
 * test/cli looks at. */
#define _GNU_SOURCE
#include "files.h"

#include "trace/writer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/vpmm-test-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static unsigned n_files(void)
{
    unsigned n = 0;
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (struct dirent *file; (file = readdir(files));)
        n += file->d_name[0] != '.';
    closedir(files);
    return n;
}

static struct vpmm_trace_writer *begin_at(const char *name, enum vpmm_trace_form form)
{
    char message[256] = "";
    struct vpmm_trace_writer *writer = NULL;
    const struct vpmm_trace_facts facts = {.program = ""};
    assert_int_equal(vpmm_trace_create(name, form, &facts, &writer, message), VPMM_OK);
    return writer;
}

static struct vpmm_trace_writer *begin(enum vpmm_trace_form form)
{
    return begin_at(path, form);
}

static struct vpmm_trace_item item(unsigned kind, uint64_t address, bool is_known)
{
    return (struct vpmm_trace_item){
        .entry = {.kind = (uint8_t)kind, .address = address, .bytes = 8}, .is_known = is_known};
}

static void put(struct vpmm_trace_writer *writer, struct vpmm_trace_item one)
{
    assert_true(vpmm_trace_put(writer, &one));
}

static void expect_text(const char *expected)
{
    char text[128] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, expected);
}

static void test_a_file_is_there_when_it_is_complete(void **state)
{
    char message[256];
    (void)state;
    struct vpmm_trace_writer *writer = begin(VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 64, true));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    expect_text("A,40,8,0,0,s\n");
    writer = begin(VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 128, true));
    expect_text("A,40,8,0,0,s\n");
    vpmm_trace_abandon(writer);
    expect_text("A,40,8,0,0,s\n");
    assert_int_equal(n_files(), 1);
}

static void test_a_link_leads_to_what_is_replaced_when_it_is_complete(void **state)
{
    char message[256], link[sizeof path];
    struct stat facts;
    (void)state;
    snprintf(link, sizeof link, "%s/link.csv", folder);
    assert_int_equal(symlink("out.csv", link), 0);
    struct vpmm_trace_writer *writer = begin(VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 64, true));
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    assert_int_equal(chmod(path, 0600), 0);
    writer = begin_at(link, VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 128, true));
    expect_text("A,40,8,0,0,s\n");
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    expect_text("A,80,8,0,0,s\n");
    assert_true(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    assert_true(stat(path, &facts) == 0 && (facts.st_mode & 0777) == 0600);
    unlink(link);
    assert_int_equal(n_files(), 1);
}

static void test_a_link_may_lead_to_a_file_that_is_not_there(void **state)
{
    char message[256], link[sizeof path];
    struct stat facts;
    (void)state;
    unlink(path);
    snprintf(link, sizeof link, "%s/link.csv", folder);
    assert_int_equal(symlink("out.csv", link), 0);
    struct vpmm_trace_writer *writer = begin_at(link, VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 64, true));
    vpmm_trace_abandon(writer);
    assert_int_equal(n_files(), 1);
    writer = begin_at(link, VPMM_TRACE_FORM_CSV);
    put(writer, item(VPMM_TRACE_MALLOC, 64, true));
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    expect_text("A,40,8,0,0,s\n");
    assert_true(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    unlink(link);
}

static void test_what_a_form_has_no_place_for_is_counted(void **state)
{
    static const struct {
        enum vpmm_trace_form form;
        struct vpmm_trace_left_out left_out;
    } cases[] = {{VPMM_TRACE_FORM_VPMM, {1, 0, 0, 0}},
                 {VPMM_TRACE_FORM_CSV, {0, 1, 1, 1}},
                 {VPMM_TRACE_FORM_RMM, {1, 0, 1, 1}},
                 {VPMM_TRACE_FORM_SNAPSHOT, {1, 0, 1, 1}},
                 {VPMM_TRACE_FORM_CHROME, {1, 0, 0, 1}}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vpmm_trace_item failed = item(VPMM_TRACE_MALLOC, 0, false);
        failed.entry.flags = VPMM_TRACE_IS_FAILED;
        struct vpmm_trace_writer *writer = begin(cases[i].form);
        put(writer, item(VPMM_TRACE_KERNEL, 0, false));
        put(writer, failed);
        put(writer, item(VPMM_TRACE_GROW, 64, false));
        put(writer, item(VPMM_TRACE_FREE, 64, false));
        put(writer, item(VPMM_TRACE_FREE, 0, false));
        const struct vpmm_trace_left_out left_out = vpmm_trace_left_out(writer);
        assert_memory_equal(&left_out, &cases[i].left_out, sizeof left_out);
        vpmm_trace_abandon(writer);
    }
}

static void test_a_full_disk_is_told_and_leaves_nothing(void **state)
{
    char message[256] = "";
    struct vpmm_trace_writer *writer;
    const struct vpmm_trace_facts facts = {.program = ""};
    bool is_written = true;
    (void)state;
    assert_int_equal(vpmm_trace_create("/dev/full", VPMM_TRACE_FORM_CSV, &facts, &writer, message),
                     VPMM_OK);
    for (unsigned i = 1; is_written && i < 100000; i++) {
        const struct vpmm_trace_item one = item(VPMM_TRACE_MALLOC, i, true);
        is_written = vpmm_trace_put(writer, &one);
    }
    assert_false(is_written);
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_FAILED);
    assert_string_equal(message, "/dev/full: No space left on device");
    assert_int_equal(
        vpmm_trace_create("/nowhere/out.csv", VPMM_TRACE_FORM_CSV, &facts, &writer, message),
        VPMM_NOT_FOUND);
    assert_string_equal(message, "/nowhere/out.csv: No such file or directory");
}

static void test_the_order_of_threads_at_one_time_is_kept(void **state)
{
    static const struct {
        unsigned kind;
        uint64_t address, thread, moment_ns;
    } items[] = {{VPMM_TRACE_MALLOC, 64, 9, 1000}, {VPMM_TRACE_FREE, 64, 9, 2000},
                 {VPMM_TRACE_MALLOC, 64, 3, 2000}, {VPMM_TRACE_MALLOC, 128, 9, 2000},
                 {VPMM_TRACE_FREE, 64, 5, 2000},   {VPMM_TRACE_FREE, 128, 5, 3000}};
    char message[256];
    struct vpmm_trace_reader *reader;
    struct vpmm_trace_item found;
    (void)state;
    struct vpmm_trace_writer *writer = begin(VPMM_TRACE_FORM_VPMM);
    for (unsigned i = 0; i < sizeof items / sizeof items[0]; i++) {
        struct vpmm_trace_item one = item(items[i].kind, items[i].address, true);
        one.thread = items[i].thread;
        one.moment_ns = items[i].moment_ns;
        one.entry.duration_ns = one.entry.kind == VPMM_TRACE_MALLOC ? 700 : 0;
        one.entry.ns = one.moment_ns - one.entry.duration_ns;
        put(writer, one);
    }
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    assert_int_equal(vpmm_trace_open(path, VPMM_TRACE_FORM_UNKNOWN, &reader, message), VPMM_OK);
    for (unsigned i = 0; i < sizeof items / sizeof items[0]; i++) {
        assert_true(vpmm_trace_next(reader, &found));
        assert_true(found.entry.kind == items[i].kind && found.entry.address == items[i].address);
        assert_true(found.thread == items[i].thread && found.is_known && !found.is_made_up);
        assert_in_range(found.moment_ns, items[i].moment_ns, items[i].moment_ns + 2);
    }
    assert_false(vpmm_trace_next(reader, &found));
    vpmm_trace_close(reader);
}

/* More threads than lanes, each of which says something twice: first all once, then all again. */
static void test_threads_without_number_share_chunks(void **state)
{
    enum {
        THREADS = 20000
    };
    char message[256];
    struct vpmm_trace_reader *reader;
    struct vpmm_trace_item found;
    struct stat facts;
    (void)state;
    struct vpmm_trace_writer *writer = begin(VPMM_TRACE_FORM_VPMM);
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        struct vpmm_trace_item one = item(VPMM_TRACE_STREAM_WAIT, 64 + i, true);
        one.thread = i % THREADS;
        one.moment_ns = one.entry.ns = i;
        one.entry.duration_ns = i % 3 ? 0 : THREADS * 3;
        put(writer, one);
    }
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    assert_int_equal(stat(path, &facts), 0);
    assert_in_range(facts.st_size, 1, (off_t)THREADS * 2 * 2 * 41 + (256 << 14));
    assert_int_equal(vpmm_trace_open(path, VPMM_TRACE_FORM_UNKNOWN, &reader, message), VPMM_OK);
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        assert_true(vpmm_trace_next(reader, &found));
        assert_true(found.entry.address == 64 + i && found.thread == i % THREADS);
    }
    assert_false(vpmm_trace_next(reader, &found));
    vpmm_trace_close(reader);
}

static void test_a_line_tells_when_a_request_was_answered(void **state)
{
    char message[256];
    (void)state;
    struct vpmm_trace_item one = item(VPMM_TRACE_MALLOC, 64, true);
    one.moment_ns = 5000;
    one.entry.duration_ns = 3000;
    one.entry.ns = 2000;
    struct vpmm_trace_writer *writer = begin(VPMM_TRACE_FORM_CSV);
    put(writer, one);
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    expect_text("A,40,8,0,5,s\n");
}

static void test_names_tell_forms(void **state)
{
    static const struct {
        const char *name;
        enum vpmm_trace_form form;
    } cases[] = {{"a.vpmm", VPMM_TRACE_FORM_VPMM},
                 {"a.b.trace", VPMM_TRACE_FORM_VPMM},
                 {"a.csv.gz", VPMM_TRACE_FORM_CSV},
                 {"a.log", VPMM_TRACE_FORM_RMM},
                 {"/x.csv/a.pkl", VPMM_TRACE_FORM_SNAPSHOT},
                 {"a.json.gz", VPMM_TRACE_FORM_CHROME},
                 {".csv", VPMM_TRACE_FORM_UNKNOWN},
                 {"a.txt", VPMM_TRACE_FORM_UNKNOWN},
                 {"-", VPMM_TRACE_FORM_UNKNOWN},
                 {"", VPMM_TRACE_FORM_UNKNOWN}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(vpmm_trace_form_of_name(cases[i].name), cases[i].form);
    for (enum vpmm_trace_form form = VPMM_TRACE_FORM_VPMM; form <= VPMM_TRACE_FORM_CHROME; form++)
        assert_int_equal(vpmm_trace_form_named(vpmm_trace_form_name(form)), form);
    assert_int_equal(vpmm_trace_form_named(""), VPMM_TRACE_FORM_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_there_when_it_is_complete),
        cmocka_unit_test(test_a_link_leads_to_what_is_replaced_when_it_is_complete),
        cmocka_unit_test(test_a_link_may_lead_to_a_file_that_is_not_there),
        cmocka_unit_test(test_what_a_form_has_no_place_for_is_counted),
        cmocka_unit_test(test_a_full_disk_is_told_and_leaves_nothing),
        cmocka_unit_test(test_the_order_of_threads_at_one_time_is_kept),
        cmocka_unit_test(test_threads_without_number_share_chunks),
        cmocka_unit_test(test_a_line_tells_when_a_request_was_answered),
        cmocka_unit_test(test_names_tell_forms),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
