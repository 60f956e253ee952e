/* SPDX-License-Identifier: MIT */
/* The file that a recorder writes: whose it may be, and what becomes of it. */
#define _GNU_SOURCE
#include "trace.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The beginning of a trace, which alone may be replaced. */
#define EARLIER VPMM_TRACE_MAGIC "of an earlier run"
#define MANY ((uint64_t)4 * 64 * 408)

static struct vpmm_recorder recorder;

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void finish(void)
{
    vpmm_recorder_end(&recorder);
    vpmm_recorder_forget(&recorder);
}

/* The trace that another process begins between the opening of the old one and its lock. */
static const char *replaced;
static int others = -1;

int flock(int fd, int operation)
{
    const char *path = replaced;
    replaced = NULL;
    if (path) {
        assert_int_equal(unlink(path), 0);
        write_text(path, EARLIER);
        others = open(path, O_RDWR | O_CLOEXEC);
        assert_int_equal(syscall(SYS_flock, others, LOCK_EX | LOCK_NB), 0);
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* Who still has the old one mapped goes on reading it. */
void old_files_make_way(void **state)
{
    (void)state;
    struct trace trace;
    const char *path = trace_path("t.trace");
    write_text(path, EARLIER);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *old = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(old != MAP_FAILED);
    trace_open(&recorder, path, 0);
    finish();
    trace_read(&trace, path);
    assert_int_equal(trace.n_bytes, VPMM_TRACE_HEADER_BYTES);
    assert_string_equal(old, EARLIER);
    trace_forget(&trace);
    (void)munmap(old, 4096);
    (void)close(fd);
}

static void refuse_within(const char *path, uint64_t limit_bytes)
{
    const char *why;
    const struct rlimit limit = {limit_bytes, limit_bytes};
    memset(&recorder, 0, sizeof recorder);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(3);
    _exit(vpmm_recorder_open(&recorder, path, 0, "test", &why) ? 0 : 4);
}

/* What cannot be recorded does not cost an older trace. */
void old_files_survive_a_refusal(void **state)
{
    (void)state;
    int status;
    char text[64] = "";
    const char *path = trace_path("t.trace");
    write_text(path, "what was there before");
    pid_t child = fork();
    if (child == 0)
        refuse_within(path, VPMM_TRACE_HEADER_BYTES - 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "what was there before");
}

/* Where standard output is closed, what the program prints must not land in the trace. */
void low_descriptors_are_left_to_the_program(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    bool has_high_ones = limit.rlim_cur > 1000;
    trace_open(&recorder, trace_path("t.trace"), 0);
    assert_true(recorder.file.fd > STDERR_FILENO + (has_high_ones ? 100 : 0));
    finish();
}

/* Whether `path` is refused, and why, in words. */
static void refuse(const char *path, const char *words)
{
    const char *why = NULL;
    memset(&recorder, 0, sizeof recorder);
    assert_int_not_equal(vpmm_recorder_open(&recorder, path, 0, "test", &why), VPMM_OK);
    assert_non_null(strstr(why, words));
}

void a_link_stays_a_link(void **state)
{
    (void)state;
    char target[128], text[64] = "";
    struct stat found;
    (void)snprintf(target, sizeof target, "%s", trace_path("target"));
    write_text(target, EARLIER);
    const char *path = trace_path("t.trace");
    assert_int_equal(symlink(target, path), 0);
    refuse(path, "symbolic link");
    assert_int_equal(lstat(path, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    int fd = open(target, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof text), sizeof EARLIER - 1);
    assert_string_equal(text, EARLIER);
    (void)close(fd);
}

void what_is_no_trace_stays(void **state)
{
    (void)state;
    char text[64] = "";
    const char *path = trace_path("train.py");
    write_text(path, "import torch");
    refuse(path, "no trace");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof text), strlen("import torch"));
    assert_string_equal(text, "import torch");
    (void)close(fd);
}

/* Fails on a page that is mapped and lies beyond the end of the file. */
static void assert_shown_is_there(const char *path)
{
    char line[512];
    struct stat found;
    unsigned n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    assert_int_equal(stat(path, &found), 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end, offset;
        char rights[8];
        if (!strstr(line, path) ||
            sscanf(line, "%lx-%lx %7s %lx", &begin, &end, rights, &offset) != 4 || rights[0] != 'r')
            continue;
        n++;
        assert_true(offset + (end - begin) <=
                    (unsigned long)found.st_size + (unsigned long)sysconf(_SC_PAGESIZE) - 1);
    }
    assert_int_equal(fclose(maps), 0);
    assert_true(n > 0);
}

/* A leak checker looks at all that can be read: a fault for each page that is not there would take
 * it hours. */
void no_more_is_mapped_than_there_is(void **state)
{
    (void)state;
    struct vpmm_recorder_writer writer = {0};
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    assert_shown_is_there(path);
    for (uint64_t n = 0; n < MANY; n++) {
        trace_write(&recorder, &writer, 0, n);
        if (n % 10000 == 0)
            assert_shown_is_there(path);
    }
    vpmm_recorder_end(&recorder);
    assert_shown_is_there(path);
    vpmm_recorder_forget(&recorder);
}

static void assert_refused(const char *path, const char *expected)
{
    const char *why = NULL;
    memset(&recorder, 0, sizeof recorder);
    assert_int_equal(vpmm_recorder_open(&recorder, path, 0, "test", &why), VPMM_INVALID);
    assert_string_equal(why, expected);
}

static bool is_btrfs;

/* In place of the system's. */
int fstatfs(int fd, struct statfs *found)
{
    if (syscall(SYS_fstatfs, fd, found) != 0)
        return -1;
    if (is_btrfs)
        found->f_type = BTRFS_SUPER_MAGIC;
    return 0;
}

void a_file_system_that_writes_elsewhere_is_refused(void **state)
{
    (void)state;
    struct stat found;
    const char *path = trace_path("t.trace");
    write_text(path, "what was there before");
    is_btrfs = true;
    assert_refused(path,
                   "its file system, btrfs, may have no room left for what is written once more");
    is_btrfs = false;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, 21);
}

void what_cannot_be_recorded_into_is_named(void **state)
{
    (void)state;
    const char *path = trace_path("t.trace");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "it is no regular file");
    assert_refused("/dev/null", "it is no regular file");
    assert_refused("/tmp", "it is a folder");
    assert_refused("/tmp/there is no such folder/t.trace", "no such folder");
    assert_refused("/dev/null/t.trace", "a part of its path is no folder");
}

void two_do_not_record_into_one_file(void **state)
{
    (void)state;
    struct vpmm_recorder first;
    struct trace trace;
    struct vpmm_recorder_writer writer = {0};
    const char *path = trace_path("t.trace");
    trace_open(&first, path, 0);
    trace_write(&first, &writer, 0, 0);
    assert_refused(path, "another process is recording into it (%p in the name is the process id)");
    trace_write(&first, &writer, 0, 1);
    vpmm_recorder_end(&first);
    trace_read(&trace, path);
    assert_int_equal(trace.n_entries, 2);
    trace_forget(&trace);
    vpmm_recorder_forget(&first);
    trace_open(&recorder, path, 0);
    finish();
}

void a_trace_that_came_meanwhile_stays(void **state)
{
    (void)state;
    struct stat there, made;
    const char *path = trace_path("t.trace");
    write_text(path, EARLIER);
    replaced = path;
    assert_refused(path, "another process is recording into it (%p in the name is the process id)");
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(fstat(others, &made), 0);
    assert_int_equal(there.st_ino, made.st_ino);
    (void)close(others);
}

/* The program closes all descriptors it did not open, as daemons do, and opens a file that gets the
 * same number. */
void a_strangers_file_is_left_alone(void **state)
{
    (void)state;
    struct trace trace;
    struct stat found;
    struct vpmm_recorder_writer writer = {0};
    char strange[128];
    (void)snprintf(strange, sizeof strange, "%s", trace_path("stranger"));
    write_text(strange, "mine");
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    int number = recorder.file.fd;
    int stranger = open(strange, O_RDWR | O_CLOEXEC);
    assert_int_equal(dup2(stranger, number), number);
    for (uint64_t n = 0; n < MANY; n++)
        trace_write(&recorder, &writer, 0, n);
    finish();
    assert_int_equal(fstat(number, &found), 0);
    assert_int_equal(found.st_size, 4);
    trace_read(&trace, path);
    assert_int_equal(trace.n_entries, MANY);
    assert_true(trace.is_whole[0]);
    assert_int_equal(trace.header->dropped, 0);
    trace_forget(&trace);
    (void)close(number);
    (void)close(stranger);
}

void a_lost_file_ends_the_recording(void **state)
{
    (void)state;
    struct trace trace;
    struct vpmm_recorder_writer writer = {0};
    char elsewhere[128];
    (void)snprintf(elsewhere, sizeof elsewhere, "%s", trace_path("elsewhere"));
    const char *path = trace_path("t.trace");
    trace_open(&recorder, path, 0);
    trace_write(&recorder, &writer, 0, 0);
    assert_int_equal(close(recorder.file.fd), 0);
    assert_int_equal(rename(path, elsewhere), 0);
    for (uint64_t n = 1; n < MANY; n++)
        trace_write(&recorder, &writer, 0, n);
    finish();
    assert_int_equal(access(path, F_OK), -1);
    trace_read(&trace, elsewhere);
    assert_in_range(trace.n_entries, 408, MANY - 1);
    assert_true(trace.is_whole[0]);
    assert_int_equal(trace.n_entries + trace.header->dropped, MANY);
    trace_forget(&trace);
}

static void record_within(const char *path, uint64_t limit_bytes)
{
    struct vpmm_recorder_writer writer = {0};
    const char *why;
    const struct rlimit limit = {limit_bytes, limit_bytes};
    memset(&recorder, 0, sizeof recorder);
    (void)signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(3);
    if (vpmm_recorder_open(&recorder, path, 0, "test", &why))
        _exit(strcmp(why, "files may not be so large") == 0 ? 1 : 2);
    for (uint64_t n = 0; n < MANY; n++)
        trace_write(&recorder, &writer, 0, n);
    vpmm_recorder_end(&recorder);
    _exit(0);
}

/* In a child: beyond the limit there is a signal that ends the process. */
void a_limit_on_files_ends_the_recording(void **state)
{
    (void)state;
    static const uint64_t limits[] = {100, 4096, 5000, 1 << 20, 3 << 20};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct trace trace;
        int status;
        const char *path = trace_path("t.trace");
        pid_t child = fork();
        if (child == 0)
            record_within(path, limits[i]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), limits[i] < VPMM_TRACE_HEADER_BYTES ? 1 : 0);
        if (WEXITSTATUS(status))
            continue;
        trace_read(&trace, path);
        assert_in_range(trace.n_bytes, VPMM_TRACE_HEADER_BYTES, limits[i]);
        assert_true(trace.n_entries > 0 || limits[i] < (1 << 20) + VPMM_TRACE_HEADER_BYTES);
        assert_true(trace.is_whole[0]);
        assert_int_equal(trace.n_entries + trace.header->dropped, MANY);
        trace_forget(&trace);
    }
}
