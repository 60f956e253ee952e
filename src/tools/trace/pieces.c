/* SPDX-License-Identifier: MIT */
/* Finds the pieces of each thread in a file of this library's own form. Must not trust a number in
 * the file. */
#include "trace/pieces.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t chunk_offset(const struct vpmm_trace_header *header, uint64_t chunk)
{
    return header->header_bytes + chunk * header->chunk_bytes;
}

bool vpmm_trace_read_failed(struct vpmm_trace_reader *reader)
{
    char room[VPMM_TRACE_ERROR_ROOM];
    return vpmm_trace_damaged(reader, "it cannot be read: %s", vpmm_trace_error_text(errno, room));
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct vpmm_trace_piece *a = left, *b = right;
    if (a->thread != b->thread)
        return compare(a->thread, b->thread);
    if (a->moment_ns != b->moment_ns)
        return compare(a->moment_ns, b->moment_ns);
    return a->chunk != b->chunk ? compare(a->chunk, b->chunk) : compare(a->first, b->first);
}

static bool add_piece(struct vpmm_trace_reader *reader, struct vpmm_trace_pieces *list,
                      const struct vpmm_trace_piece *piece)
{
    if (piece->n_entries == 0)
        return true;
    if ((list->n & (list->n - 1)) == 0) {
        size_t room = list->n ? (size_t)list->n * 2 : 1;
        struct vpmm_trace_piece *pieces =
            list->n <= UINT32_MAX / 2 ? realloc(list->pieces, room * sizeof *pieces) : NULL;
        if (!pieces)
            return vpmm_trace_damaged(reader, "there is no memory to read it");
        list->pieces = pieces;
    }
    list->pieces[list->n++] = *piece;
    return true;
}

bool vpmm_trace_pieces_cut_off(struct vpmm_trace_reader *reader, uint32_t chunk)
{
    return vpmm_trace_damaged(reader, "it is cut off in chunk %u of %llu", chunk,
                              (unsigned long long)reader->header.n_chunks);
}

bool vpmm_trace_pieces_load(struct vpmm_trace_reader *reader, uint32_t chunk, uint32_t first,
                            uint32_t n,
                            struct vpmm_trace_entry entries_out[static VPMM_TRACE_PORTION],
                            uint32_t *n_out)
{
    size_t n_bytes;
    uint64_t offset = chunk_offset(&reader->header, chunk) + sizeof(struct vpmm_trace_chunk) +
                      (uint64_t)first * sizeof *entries_out;
    if (!vpmm_trace_input_read(&reader->input, offset, entries_out, n * sizeof *entries_out,
                               &n_bytes))
        return vpmm_trace_read_failed(reader);
    *n_out = (uint32_t)(n_bytes / sizeof *entries_out);
    return true;
}

/* One piece for each thread that went on with the chunk. False where the reading has to end. */
static bool look_at_shared(struct vpmm_trace_reader *reader, struct vpmm_trace_pieces *list,
                           uint32_t number, const struct vpmm_trace_chunk *chunk)
{
    struct vpmm_trace_entry entries[VPMM_TRACE_PORTION];
    struct vpmm_trace_piece piece = {.thread = chunk->thread, .chunk = number};
    for (uint32_t i = 0, n = 0; i < chunk->n_entries; i++) {
        const struct vpmm_trace_entry *entry = &entries[i % VPMM_TRACE_PORTION];
        uint32_t n_left = chunk->n_entries - i;
        if (i % VPMM_TRACE_PORTION == 0 &&
            !vpmm_trace_pieces_load(reader, number, i,
                                    n_left < VPMM_TRACE_PORTION ? n_left : VPMM_TRACE_PORTION,
                                    entries, &n))
            return false;
        if (i % VPMM_TRACE_PORTION >= n)
            return add_piece(reader, list, &piece) && vpmm_trace_pieces_cut_off(reader, number);
        if (entry->kind != VPMM_TRACE_THREAD) {
            if (piece.n_entries++ == 0)
                piece.moment_ns = vpmm_trace_moment_ns(entry);
            continue;
        }
        if (!add_piece(reader, list, &piece))
            return false;
        piece =
            (struct vpmm_trace_piece){.thread = entry->address, .chunk = number, .first = i + 1};
    }
    return add_piece(reader, list, &piece);
}

/* A chunk without a mark was given out and not begun. False where the reading has to end. */
static bool look_at_chunk(struct vpmm_trace_reader *reader, struct vpmm_trace_pieces *list,
                          uint32_t number)
{
    const struct vpmm_trace_header *header = &reader->header;
    struct {
        struct vpmm_trace_chunk chunk;
        struct vpmm_trace_entry first;
    } begin = {0};
    size_t n;
    const struct vpmm_trace_chunk *chunk = &begin.chunk;
    uint64_t offset = chunk_offset(header, number);
    if (!vpmm_trace_input_read(&reader->input, offset, &begin, sizeof begin, &n))
        return vpmm_trace_read_failed(reader);
    if (n < sizeof *chunk)
        return vpmm_trace_pieces_cut_off(reader, number);
    if (chunk->magic == 0 && chunk->n_entries == 0)
        return true;
    if (chunk->magic != VPMM_TRACE_CHUNK_MAGIC)
        return vpmm_trace_damaged(reader, "chunk %u does not begin as a chunk does", number);
    if (chunk->n_entries > (header->chunk_bytes - sizeof *chunk) / header->entry_bytes)
        return vpmm_trace_damaged(reader, "chunk %u has more entries than it can have", number);
    if (chunk->is_shared)
        return look_at_shared(reader, list, number, chunk);
    return add_piece(reader, list,
                     &(struct vpmm_trace_piece){.thread = chunk->thread,
                                                .moment_ns = vpmm_trace_moment_ns(&begin.first),
                                                .chunk = number,
                                                .n_entries = chunk->n_entries});
}

void vpmm_trace_pieces_find(struct vpmm_trace_reader *reader, struct vpmm_trace_pieces *list)
{
    uint64_t n = reader->header.n_chunks;
    bool goes_on = true;
    for (uint32_t number = 0; goes_on && number < n; number++)
        goes_on = number < UINT32_MAX && look_at_chunk(reader, list, number);
    if (list->n)
        qsort(list->pieces, list->n, sizeof *list->pieces, compare_pieces);
}
