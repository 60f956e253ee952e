/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

int file_make(void)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

void file_write(int fd, uint64_t offset, const void *bytes, size_t n_bytes)
{
    assert_int_equal(pwrite(fd, bytes, n_bytes, (off_t)offset), (ssize_t)n_bytes);
}

int file_of_text(const char *text)
{
    int fd = file_make();
    file_write(fd, 0, text, strlen(text));
    return fd;
}

struct vpmm_trace_reader *file_open(int fd, enum vpmm_trace_form form)
{
    char message[256] = "";
    struct vpmm_trace_reader *reader = NULL;
    enum vpmm_status status = vpmm_trace_open_fd(fd, "file", form, &reader, message);
    assert_string_equal(message, "");
    assert_int_equal(status, VPMM_OK);
    close(fd);
    return reader;
}

struct vpmm_trace_item file_next(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_item item;
    assert_true(vpmm_trace_next(reader, &item));
    assert_null(vpmm_trace_damage(reader));
    return item;
}

void file_end(struct vpmm_trace_reader *reader, const char *damage)
{
    struct vpmm_trace_item item;
    assert_false(vpmm_trace_next(reader, &item));
    const char *found = vpmm_trace_damage(reader);
    if (!damage) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_memory_equal(found, "file: ", 6);
    assert_string_equal(found + 6, damage);
}

void file_put_header(int fd, uint64_t n_chunks)
{
    const struct vpmm_trace_header header = {.magic = VPMM_TRACE_MAGIC,
                                             .version = VPMM_TRACE_VERSION,
                                             .header_bytes = VPMM_TRACE_HEADER_BYTES,
                                             .chunk_bytes = VPMM_TRACE_CHUNK_BYTES,
                                             .entry_bytes = sizeof(struct vpmm_trace_entry),
                                             .pid = 7,
                                             .n_chunks = n_chunks,
                                             .program = "program"};
    assert_int_equal(
        ftruncate(fd, (off_t)(VPMM_TRACE_HEADER_BYTES + n_chunks * VPMM_TRACE_CHUNK_BYTES)), 0);
    file_write(fd, 0, &header, sizeof header);
}

void file_put_chunk(int fd, uint32_t number, uint64_t thread,
                    const struct vpmm_trace_entry *entries, uint32_t n_entries)
{
    uint64_t offset = VPMM_TRACE_HEADER_BYTES + (uint64_t)number * VPMM_TRACE_CHUNK_BYTES;
    const struct vpmm_trace_chunk chunk = {
        .magic = VPMM_TRACE_CHUNK_MAGIC, .n_entries = n_entries, .thread = thread};
    file_write(fd, offset, &chunk, sizeof chunk);
    if (n_entries)
        file_write(fd, offset + sizeof chunk, entries, n_entries * sizeof *entries);
}
