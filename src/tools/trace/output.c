/* SPDX-License-Identifier: MIT */
/* Writes a file from its beginning to its end, compressed where its name says so. Must not put it
 * in the place of another file before it is complete. */
#define _GNU_SOURCE
#include "trace/output.h"

#include "trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
#define FORMAT_ROOM 1024

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* `fd` is the output's from here on. */
static bool attach(struct vpmm_trace_output *output, int fd, const char *mode)
{
    errno = ENOMEM; /* zlib leaves it alone */
    output->file = gzdopen(fd, mode);
    if (!output->file) {
        int error = errno;
        close(fd);
        errno = error;
        return false;
    }
    gzbuffer(output->file, BUFFER_BYTES);
    return true;
}

/* The rights of the file that is replaced, or those that a new file gets. */
static mode_t rights_at(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) == 0)
        return facts.st_mode & 0777;
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* A file beside `path`. */
static int open_beside(struct vpmm_trace_output *output)
{
    int length = snprintf(output->temporary, sizeof output->temporary, "%s.XXXXXX", output->path);
    if ((size_t)length >= sizeof output->temporary) {
        output->temporary[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(output->temporary, O_CLOEXEC);
    if (fd < 0) {
        output->temporary[0] = '\0';
        return -1;
    }
    fchmod(fd, rights_at(output->path));
    return fd;
}

static int open_named(struct vpmm_trace_output *output, const char *path)
{
    struct stat facts;
    if (strcmp(path, "-") == 0)
        return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (strlen(path) >= sizeof output->path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
        return open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    memcpy(output->path, path, strlen(path) + 1);
    /* A link stays one: the file that it leads to may be what is read just now. */
    bool is_link = lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
    if (!is_link || realpath(path, output->path))
        return open_beside(output);
    /* It leads to a file that is not there, whose name is known once it is; or, in /proc, to one
     * without a name. */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || !realpath(path, output->path)) {
        output->path[0] = '\0';
        return fd;
    }
    close(fd);
    unlink(output->path);
    return open_beside(output);
}

bool vpmm_trace_output_open(struct vpmm_trace_output *output, const char *path)
{
    *output = (struct vpmm_trace_output){.fd = -1};
    int fd = open_named(output, path);
    if (fd < 0)
        return false;
    if (attach(output, fd, ends_in(path, ".gz") ? "w6" : "wT"))
        return true;
    int error = errno;
    vpmm_trace_output_abandon(output);
    errno = error;
    return false;
}

bool vpmm_trace_output_open_nameless(struct vpmm_trace_output *output)
{
    *output = (struct vpmm_trace_output){.fd = vpmm_trace_input_nameless()};
    return output->fd >= 0 && attach(output, output->fd, "wT");
}

static void fail(struct vpmm_trace_output *output)
{
    int error = Z_OK;
    gzerror(output->file, &error);
    output->error = error == Z_ERRNO && errno ? errno : EIO;
}

void vpmm_trace_output_bytes(struct vpmm_trace_output *output, const void *bytes, size_t n_bytes)
{
    if (n_bytes && !output->error && gzwrite(output->file, bytes, (unsigned)n_bytes) == 0)
        fail(output);
}

void vpmm_trace_output_format(struct vpmm_trace_output *output, const char *format, ...)
{
    char text[FORMAT_ROOM];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof text)
        output->error = output->error ? output->error : EOVERFLOW;
    else
        vpmm_trace_output_bytes(output, text, (size_t)length);
}

void vpmm_trace_output_copy(struct vpmm_trace_output *output, int fd)
{
    char bytes[BUFFER_BYTES];
    off_t at = 0;
    while (!output->error) {
        ssize_t n = pread(fd, bytes, sizeof bytes, at);
        if (n == 0)
            return;
        if (n < 0 && errno != EINTR)
            output->error = errno;
        if (n > 0) {
            vpmm_trace_output_bytes(output, bytes, (size_t)n);
            at += n;
        }
    }
}

void vpmm_trace_output_flush(struct vpmm_trace_output *output)
{
    if (!output->error && gzflush(output->file, Z_FINISH) != Z_OK)
        fail(output);
}

static void end_file(struct vpmm_trace_output *output)
{
    if (output->file && gzclose(output->file) != Z_OK && !output->error)
        output->error = errno ? errno : EIO;
    output->file = NULL;
}

void vpmm_trace_output_abandon(struct vpmm_trace_output *output)
{
    end_file(output);
    if (output->temporary[0])
        unlink(output->temporary);
    output->temporary[0] = '\0';
}

bool vpmm_trace_output_close(struct vpmm_trace_output *output)
{
    end_file(output);
    if (!output->error && output->temporary[0] && rename(output->temporary, output->path) != 0)
        output->error = errno;
    if (output->error) {
        vpmm_trace_output_abandon(output);
        errno = output->error;
        return false;
    }
    output->temporary[0] = '\0';
    return true;
}
