/* SPDX-License-Identifier: MIT */
/* The bytes of a file that is read, decompressed where need be. Must not map the file, which may be
 * cut off meanwhile. */
#define _GNU_SOURCE
#include "trace/input.h"

#include "trace/form.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Enough to tell a form, also where it is compressed. */
#define HEAD_BYTES 65536

const char *vpmm_trace_error_text(int error, char room[static VPMM_TRACE_ERROR_ROOM])
{
    if (!VPMM_GZ_INFLATES && error == ENOTSUP)
        return "this vpmm was built without zlib, and has no gzip";
    return strerror_r(error, room, VPMM_TRACE_ERROR_ROOM);
}

static int make_nameless(const char *folder)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/vpmm-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

int vpmm_trace_input_nameless(void)
{
    const char *folder = secure_getenv("TMPDIR");
    int fd = folder && *folder ? make_nameless(folder) : -1;
    return fd >= 0 ? fd : make_nameless("/tmp");
}

static bool write_all(int fd, const char *bytes, size_t n_bytes)
{
    while (n_bytes) {
        ssize_t written = write(fd, bytes, n_bytes);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            bytes += written;
            n_bytes -= (size_t)written;
        }
    }
    return true;
}

static int close_failed(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Whether more of the copy `to` is worth having; its end is where it was. */
static bool may_be_trace(int to, enum vpmm_trace_form form)
{
    char head[VPMM_TRACE_HEAD_ROOM] = "";
    struct vpmm_trace_input input = {.fd = to};
    const char *complaint;
    size_t n = vpmm_trace_input_peek(&input, head, sizeof head - 1, &complaint);
    return !complaint && vpmm_trace_form_may_be(form, head, n) && lseek(to, 0, SEEK_END) >= 0;
}

static int copy_all(int from, enum vpmm_trace_form form)
{
    char bytes[HEAD_BYTES];
    int to = vpmm_trace_input_nameless();
    for (size_t n_copied = 0; to >= 0;) {
        ssize_t n = read(from, bytes, sizeof bytes);
        if ((n < 0 && errno != EINTR) || (n > 0 && !write_all(to, bytes, (size_t)n)))
            return close_failed(to);
        bool is_head = n_copied < HEAD_BYTES;
        n_copied += n > 0 ? (size_t)n : 0;
        if (n == 0 || (is_head && n_copied >= HEAD_BYTES && !may_be_trace(to, form)))
            return to;
    }
    return -1;
}

int vpmm_trace_settle(int fd, enum vpmm_trace_form form)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return -1;
    if (S_ISDIR(facts.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    return S_ISREG(facts.st_mode) ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : copy_all(fd, form);
}

static bool measure(struct vpmm_trace_input *input)
{
    struct stat facts;
    if (fstat(input->fd, &facts) != 0)
        return false;
    input->bytes = (uint64_t)facts.st_size;
    return true;
}

enum vpmm_status vpmm_trace_input_open(struct vpmm_trace_input *input, int fd,
                                       enum vpmm_trace_form form)
{
    *input = (struct vpmm_trace_input){.fd = vpmm_trace_settle(fd, form)};
    if (input->fd < 0)
        return VPMM_NOT_FOUND;
    if (measure(input))
        return VPMM_OK;
    close_failed(input->fd);
    input->fd = -1;
    return VPMM_NOT_FOUND;
}

static void end_lines(struct vpmm_trace_input *input)
{
    if (input->text)
        gzclose(input->text);
    input->text = NULL;
}

void vpmm_trace_input_close(struct vpmm_trace_input *input)
{
    end_lines(input);
    if (input->fd >= 0)
        close(input->fd);
    input->fd = -1;
}

bool vpmm_trace_input_lines(struct vpmm_trace_input *input)
{
    end_lines(input);
    input->line_number = 0;
    /* A descriptor of its own has the same offset: whoever reads lines is alone with the file. */
    int fd = fcntl(input->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return false;
    if (lseek(fd, 0, SEEK_SET) < 0) {
        close_failed(fd);
        return false;
    }
    input->text = gzdopen(fd, "r");
    if (!input->text) {
        close(fd);
        errno = ENOMEM;
        return false;
    }
    gzbuffer(input->text, 65536);
    return true;
}

static const char *complaint_of(struct vpmm_trace_input *input)
{
    int error;
    gzerror(input->text, &error);
    switch (error) {
    case Z_OK:
    case Z_STREAM_END:
        return NULL;
    case Z_BUF_ERROR:
        return "the compressed data ends too early";
    case Z_ERRNO:
        return vpmm_trace_error_text(errno, input->error_text);
    case Z_MEM_ERROR:
        return "there is no memory to decompress it";
    case Z_VERSION_ERROR:
        return vpmm_trace_error_text(ENOTSUP, input->error_text);
    default:
        return "the compressed data is damaged";
    }
}

size_t vpmm_trace_input_peek(struct vpmm_trace_input *input, void *bytes_out, size_t room,
                             const char **complaint_out)
{
    *complaint_out = NULL;
    if (!vpmm_trace_input_lines(input)) {
        *complaint_out = vpmm_trace_error_text(errno, input->error_text);
        return 0;
    }
    int n = gzread(input->text, bytes_out, (unsigned)room);
    if (n <= 0)
        *complaint_out = complaint_of(input);
    end_lines(input);
    return n < 0 ? 0 : (size_t)n;
}

bool vpmm_trace_input_inflate(struct vpmm_trace_input *input)
{
    char bytes[65536];
    int n = 0;
    if (!vpmm_trace_input_lines(input))
        return false;
    gzread(input->text, bytes, 1);
    if (gzdirect(input->text)) {
        end_lines(input);
        return true;
    }
    if (!VPMM_GZ_INFLATES) {
        end_lines(input);
        errno = ENOTSUP;
        return false;
    }
    gzrewind(input->text);
    int to = vpmm_trace_input_nameless();
    while (to >= 0 && (n = gzread(input->text, bytes, sizeof bytes)) > 0) {
        if (!write_all(to, bytes, (size_t)n))
            to = close_failed(to);
    }
    if (to < 0) {
        end_lines(input);
        return false;
    }
    vpmm_trace_input_close(input);
    input->fd = to;
    /* What is compressed and cut off is told by the file's own layout. */
    return measure(input);
}

int vpmm_trace_plain(int fd)
{
    struct vpmm_trace_input input = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (input.fd >= 0 && vpmm_trace_input_inflate(&input))
        return input.fd;
    return input.fd < 0 ? -1 : close_failed(input.fd);
}

bool vpmm_trace_input_read(const struct vpmm_trace_input *input, uint64_t offset, void *bytes_out,
                           size_t n_bytes, size_t *n_read_out)
{
    size_t n_read = 0;
    if (offset > INT64_MAX - n_bytes) {
        errno = EOVERFLOW;
        return false;
    }
    while (n_read < n_bytes) {
        ssize_t n = pread(input->fd, (char *)bytes_out + n_read, n_bytes - n_read,
                          (off_t)(offset + n_read));
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            n_read += (size_t)n;
    }
    *n_read_out = n_read;
    return true;
}

bool vpmm_trace_input_line(struct vpmm_trace_input *input, const char **complaint_out)
{
    char *line = input->line;
    *complaint_out = NULL;
    input->line_number++;
    z_off_t begin = gztell(input->text);
    if (!gzgets(input->text, line, VPMM_TRACE_LINE_ROOM)) {
        *complaint_out = complaint_of(input);
        return false;
    }
    size_t length = strlen(line);
    bool is_whole = length > 0 && line[length - 1] == '\n';
    if (!is_whole && (*complaint_out = complaint_of(input)))
        return false;
    /* With a NUL in it a line is longer than its text. */
    if ((size_t)(gztell(input->text) - begin) != length)
        *complaint_out = "not text";
    else if (!is_whole && !gzeof(input->text))
        *complaint_out = "the line is too long";
    if (*complaint_out)
        return false;
    if (is_whole)
        length--;
    if (length > 0 && line[length - 1] == '\r')
        length--;
    line[length] = '\0';
    return true;
}

uint64_t vpmm_trace_input_at(const struct vpmm_trace_input *input)
{
    z_off_t at = input->text ? gzoffset(input->text) : 0;
    return at < 0 ? 0 : (uint64_t)at;
}
