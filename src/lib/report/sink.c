/* SPDX-License-Identifier: MIT */
/* Opens the files that reports are written to. Must not write into a file that belongs to another
 * user or holds something else. */
#define _GNU_SOURCE
#include "report/report_internal.h"

#include "base/fault.h"
#include "base/text.h"
#include "base/write.h"
#include "observe/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGINNING_BYTES 32
/* Another process's report takes less, unless it is stopped in the middle. */
#define LOCK_TRIES 50
#define LOCK_PAUSE_MS 10
#define NEVER_FOLLOW (O_NOCTTY | O_NOFOLLOW | O_NONBLOCK)

static const char is_foreign[] = "it belongs to another user";
static const char is_strange[] = "it is no file, pipe or terminal";
static const char holds_other[] = "it holds something else";

/* ---- what is there ---- */

static bool begins_so(const char *text, size_t n, const char *const *beginnings)
{
    for (; *beginnings; beginnings++) {
        size_t length = strlen(*beginnings);
        if (n >= length && memcmp(text, *beginnings, length) == 0)
            return true;
    }
    return false;
}

/* The same file, opened to be read. */
static bool holds_reports(const char *path, const struct stat *facts, const char *const *beginnings)
{
    char text[BEGINNING_BYTES];
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC | NEVER_FOLLOW);
    if (fd < 0)
        return false;
    bool is_same =
        fstat(fd, &found) == 0 && found.st_dev == facts->st_dev && found.st_ino == facts->st_ino;
    ssize_t n = is_same ? pread(fd, text, sizeof text, 0) : 0;
    (void)close(fd);
    return n > 0 && begins_so(text, (size_t)n, beginnings);
}

/* Why what is at `path` is not to be written to; NULL: it may be. */
static const char *judge(const char *path, const struct stat *facts, const char *const *beginnings)
{
    if (S_ISCHR(facts->st_mode))
        return NULL;
    if (S_ISLNK(facts->st_mode))
        return vpmm_fault_text(ELOOP);
    if (!S_ISREG(facts->st_mode) && !S_ISFIFO(facts->st_mode))
        return S_ISDIR(facts->st_mode) ? vpmm_fault_text(EISDIR) : is_strange;
    if (facts->st_uid != geteuid())
        return is_foreign;
    bool is_free = S_ISFIFO(facts->st_mode) || facts->st_size == 0;
    return is_free || holds_reports(path, facts, beginnings) ? NULL : holds_other;
}

/* ---- descriptors ---- */

/* The lowest three are the program's, whether they are open or not. */
static int move_up(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int number = errno;
    (void)close(fd);
    errno = number;
    return high;
}

static int create(const char *path)
{
    return move_up(
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | NEVER_FOLLOW, 0644));
}

static bool find_standard(const char *path, struct vpmm_sink *sink_out)
{
    *sink_out = (struct vpmm_sink){.fd = vpmm_log_descriptor()};
    if (strcmp(path, "/dev/stdout") == 0)
        sink_out->fd = STDOUT_FILENO;
    else if (path[0] && strcmp(path, "/dev/stderr") != 0)
        return false;
    return true;
}

const char *vpmm_sink_open(const char *path, const char *const *beginnings,
                           struct vpmm_sink *sink_out)
{
    struct stat facts;
    if (find_standard(path, sink_out))
        return NULL;
    int fd = create(path);
    bool is_new = fd >= 0;
    if (!is_new && errno == EEXIST)
        fd = move_up(open(path, O_WRONLY | O_APPEND | O_CLOEXEC | NEVER_FOLLOW));
    if (fd < 0 || fstat(fd, &facts) != 0)
        return vpmm_fault_text(errno);
    const char *why = is_new ? NULL : judge(path, &facts, beginnings);
    if (why) {
        (void)close(fd);
        return why;
    }
    *sink_out = (struct vpmm_sink){.fd = fd,
                                   .is_ours = true,
                                   .is_file = S_ISREG(facts.st_mode),
                                   .bytes = (uint64_t)facts.st_size};
    return NULL;
}

bool vpmm_sink_lock(struct vpmm_sink *sink)
{
    struct stat facts;
    for (int i = 0; sink->is_file && flock(sink->fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK)
            return true;
        if (i == LOCK_TRIES)
            return false;
        (void)poll(NULL, 0, LOCK_PAUSE_MS);
    }
    sink->is_locked = sink->is_file;
    if (sink->is_file && fstat(sink->fd, &facts) == 0)
        sink->bytes = (uint64_t)facts.st_size;
    return true;
}

void vpmm_sink_take_back(const struct vpmm_sink *sink)
{
    struct vpmm_shield shield;
    if (!sink->is_locked || !vpmm_shield_raise(&shield))
        return;
    (void)ftruncate(sink->fd, (off_t)sink->bytes);
    vpmm_shield_lower(&shield);
}

bool vpmm_sink_close(const struct vpmm_sink *sink)
{
    /* A child forked meanwhile has the descriptor, too, and the lock is the file's. */
    if (sink->is_locked)
        (void)flock(sink->fd, LOCK_UN);
    return !sink->is_ours || close(sink->fd) == 0;
}

/* ---- in the place of the one before ---- */

static bool is_at(const char *path, int fd)
{
    struct stat there, ours;
    return lstat(path, &there) == 0 && fstat(fd, &ours) == 0 && there.st_dev == ours.st_dev &&
           there.st_ino == ours.st_ino;
}

/* Whether it is a report that nobody writes any more; it is gone then. */
static bool remove_left(const char *path, const char *const *beginnings)
{
    struct stat left;
    int fd = move_up(open(path, O_WRONLY | O_CLOEXEC | NEVER_FOLLOW));
    bool is_left = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &left) == 0 &&
                   S_ISREG(left.st_mode) && !judge(path, &left, beginnings) && is_at(path, fd) &&
                   unlink(path) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is_left;
}

/* A process that was killed may have left its file. In a container, the next one has its number;
 * but so may one that runs in another container. */
static int create_anew(const char *path, const char *const *beginnings)
{
    int fd = create(path);
    if (fd < 0 && errno == EEXIST) {
        if (remove_left(path, beginnings))
            fd = create(path);
        else
            errno = EEXIST;
    }
    if (fd >= 0)
        (void)flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

const char *vpmm_sink_open_replacement(const char *path, const char *const *beginnings,
                                       struct vpmm_replacement *replacement_out)
{
    struct stat facts;
    struct vpmm_text name;
    struct vpmm_replacement *made = replacement_out;
    made->path = path;
    made->name[0] = 0;
    if (find_standard(path, &made->sink))
        return NULL;
    bool is_there = lstat(path, &facts) == 0;
    if (is_there && !S_ISREG(facts.st_mode))
        return vpmm_sink_open(path, beginnings, &made->sink);
    const char *why = is_there ? judge(path, &facts, beginnings) : NULL;
    if (why)
        return why;
    vpmm_text_init(&name, made->name, sizeof made->name, VPMM_TEXT_CUT);
    vpmm_text_string(&name, path);
    vpmm_text_char(&name, '.');
    vpmm_text_decimal(&name, (uint64_t)getpid(), 0);
    vpmm_text_string(&name, ".new");
    errno = ENAMETOOLONG;
    int fd = name.length + 1 < sizeof made->name ? create_anew(made->name, beginnings) : -1;
    if (fd < 0) {
        made->name[0] = 0;
        return vpmm_fault_text(errno);
    }
    made->sink = (struct vpmm_sink){.fd = fd, .is_ours = true, .is_file = true};
    return NULL;
}

const char *vpmm_sink_replace(struct vpmm_replacement *replacement, bool is_whole)
{
    const char *why = NULL;
    bool has_name = replacement->name[0] != 0;
    bool is_there = has_name && is_at(replacement->name, replacement->sink.fd);
    is_whole &= vpmm_sink_close(&replacement->sink);
    if (has_name && !is_there) {
        replacement->name[0] = 0;
        return "another process has taken its place";
    }
    if (!is_whole && replacement->sink.is_ours)
        why = "not all of it could be written";
    else if (has_name && rename(replacement->name, replacement->path) != 0)
        why = vpmm_fault_text(errno);
    if (why && has_name)
        (void)unlink(replacement->name);
    replacement->name[0] = 0;
    return why;
}
