/* SPDX-License-Identifier: MIT */
/* What gz.h promises, in a build without zlib. Must not read what gzip compressed as if it were
 * plain. */
#define _GNU_SOURCE
#include "trace/gz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct vpmm_plain_file {
    FILE *file;
    bool is_compressed;
    int error;
};

/* Looks at the first two bytes of a file that is read, and leaves the offset alone. A file without
 * an offset, such as a pipe, is plain. */
static bool begins_as_gzip(int fd)
{
    unsigned char head[2];
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && pread(fd, head, sizeof head, at) == (ssize_t)sizeof head && head[0] == 0x1f &&
           head[1] == 0x8b;
}

struct vpmm_plain_file *vpmm_plain_open(int fd, const char *mode)
{
    const bool is_read = mode[0] == 'r';
    if (!is_read && strcmp(mode, "wT") != 0) {
        errno = ENOTSUP;
        return NULL;
    }
    struct vpmm_plain_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->is_compressed = is_read && begins_as_gzip(fd);
    file->file = fdopen(fd, is_read ? "r" : "w");
    if (!file->file) {
        free(file);
        return NULL;
    }
    return file;
}

int vpmm_plain_close(struct vpmm_plain_file *file)
{
    int error = fclose(file->file) == 0 ? file->error : Z_ERRNO;
    free(file);
    return error;
}

/* Whether the file may be read; if not, remembers why. */
static bool may_read(struct vpmm_plain_file *file)
{
    if (file->is_compressed)
        file->error = Z_VERSION_ERROR;
    return !file->is_compressed;
}

int vpmm_plain_read(struct vpmm_plain_file *file, void *bytes_out, unsigned n_bytes)
{
    if (!may_read(file))
        return -1;
    size_t n = fread(bytes_out, 1, n_bytes, file->file);
    if (n == 0 && ferror(file->file)) {
        file->error = Z_ERRNO;
        return -1;
    }
    return (int)n;
}

char *vpmm_plain_line(struct vpmm_plain_file *file, char *line_out, int room)
{
    if (!may_read(file))
        return NULL;
    char *line = fgets(line_out, room, file->file);
    if (!line && ferror(file->file))
        file->error = Z_ERRNO;
    return line;
}

int vpmm_plain_write(struct vpmm_plain_file *file, const void *bytes, unsigned n_bytes)
{
    if (fwrite(bytes, 1, n_bytes, file->file) == n_bytes)
        return (int)n_bytes;
    file->error = Z_ERRNO;
    return 0;
}

int vpmm_plain_flush(struct vpmm_plain_file *file)
{
    if (fflush(file->file) != 0)
        file->error = Z_ERRNO;
    return file->error;
}

int vpmm_plain_rewind(struct vpmm_plain_file *file)
{
    return fseeko(file->file, 0, SEEK_SET);
}

off_t vpmm_plain_offset(struct vpmm_plain_file *file)
{
    return ftello(file->file);
}

bool vpmm_plain_is_at_end(struct vpmm_plain_file *file)
{
    return feof(file->file) != 0;
}

bool vpmm_plain_is_plain(struct vpmm_plain_file *file)
{
    return !file->is_compressed;
}

void vpmm_plain_error(struct vpmm_plain_file *file, int *error_out)
{
    *error_out = file->error;
}
