/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "trace_input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define CHUNK_BYTES 1024u
#define ENTRIES_MOST 22u
#define CHUNKS_MOST 5u

static void write_at(int fd, uint64_t offset, const void *bytes, size_t n_bytes)
{
    assert_int_equal(pwrite(fd, bytes, n_bytes, (off_t)offset), (ssize_t)n_bytes);
}

/* Mostly few values, so that addresses meet again; sometimes any. */
static uint64_t some_value(struct input *input)
{
    uint64_t byte = input_byte(input);
    return byte < 0xf8 ? byte % 16 * 64 : input_word(input);
}

static struct vpmm_trace_entry some_entry(struct input *input, uint64_t *ns)
{
    struct vpmm_trace_entry entry = {0};
    uint64_t kind = input_byte(input);
    *ns += input_byte(input);
    entry.ns = kind < 0xfc ? *ns : input_word(input);
    entry.kind =
        kind < 0xf0 ? kind & 1 ? VPMM_TRACE_FREE : VPMM_TRACE_MALLOC : (uint8_t)(kind % 16);
    if (kind >= 0xc0 && kind < 0xf0)
        entry.kind = (uint8_t)(kind % VPMM_TRACE_KINDS);
    entry.duration_ns = (uint32_t)input_byte(input);
    entry.address = some_value(input);
    entry.bytes = some_value(input);
    uint64_t rest = input_byte(input);
    entry.flags = (uint8_t)(rest & 3);
    entry.device = (uint8_t)(rest >> 2 & 3);
    entry.path = (uint8_t)(rest >> 4);
    entry.stream = rest >> 6;
    return entry;
}

static void put_chunk(struct input *input, int fd, uint64_t number, uint64_t *ns)
{
    uint64_t offset = VPMM_TRACE_HEADER_BYTES + number * CHUNK_BYTES, first = input_byte(input);
    struct vpmm_trace_chunk chunk = {
        .magic = VPMM_TRACE_CHUNK_MAGIC, .thread = first % 4, .is_shared = first % 3 == 0};
    uint32_t n = (uint32_t)(first / 4 % (ENTRIES_MOST + 1));
    for (uint32_t i = 0; i < n; i++) {
        const struct vpmm_trace_entry entry = some_entry(input, ns);
        write_at(fd, offset + sizeof chunk + i * sizeof entry, &entry, sizeof entry);
    }
    chunk.n_entries = n;
    if (first >= 0xf8)
        chunk.n_entries = (uint32_t)input_word(input);
    if (first >= 0xfe)
        chunk.magic = (uint32_t)input_byte(input);
    write_at(fd, offset, &chunk, sizeof chunk);
}

static void put_native(struct input *input, int fd)
{
    struct vpmm_trace_header header = {.magic = VPMM_TRACE_MAGIC,
                                       .version = VPMM_TRACE_VERSION,
                                       .header_bytes = VPMM_TRACE_HEADER_BYTES,
                                       .chunk_bytes = CHUNK_BYTES,
                                       .entry_bytes = sizeof(struct vpmm_trace_entry)};
    uint64_t first = input_byte(input), n = first % CHUNKS_MOST, ns = 0;
    header.n_chunks = n;
    header.pid = first;
    header.start_unix_ns = first << 40;
    memset(header.program, (int)first, sizeof header.program);
    assert_int_equal(ftruncate(fd, VPMM_TRACE_HEADER_BYTES), 0);
    for (uint64_t i = 0; i < n; i++)
        put_chunk(input, fd, i, &ns);
    write_at(fd, 0, &header, sizeof header);
    if (first >= 0xc0) {
        uint64_t value = input_word(input);
        size_t at = (size_t)input_below(input, sizeof header - sizeof value);
        write_at(fd, at, &value, sizeof value);
    }
    if (first >= 0xe0) {
        uint64_t cut = input_word(input) % (VPMM_TRACE_HEADER_BYTES + CHUNKS_MOST * CHUNK_BYTES);
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
    }
}

int trace_input_file(struct input *input, enum vpmm_trace_form *form_out)
{
    static const enum vpmm_trace_form forms[] = {VPMM_TRACE_FORM_UNKNOWN, VPMM_TRACE_FORM_CSV,
                                                 VPMM_TRACE_FORM_RMM, VPMM_TRACE_FORM_VPMM};
    uint64_t first = input_byte(input);
    int fd = memfd_create("trace", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *form_out = forms[first / 2 % 4];
    if (first % 2) {
        put_native(input, fd);
        *form_out = VPMM_TRACE_FORM_UNKNOWN;
    } else if (!input_is_over(input)) {
        write_at(fd, 0, input->at, (size_t)(input->end - input->at));
    }
    return fd;
}
