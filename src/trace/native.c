/* SPDX-License-Identifier: MIT */
/* This library's own form. The chunks of each thread are one sequence, and the sequences are merged
 * by time. What is read is what the file said when reading began: a process may still write it. */
#include "trace/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An entry is written when its call ends, behind those of calls within: so many may be between. */
#define WINDOW 16u
#define PORTION 64u
#define SIZE_MOST (1u << 24)
#define BYTES_MOST (UINT64_MAX >> 4)

struct piece {
    uint64_t thread;
    uint32_t chunk, n_entries;
};

struct sequence {
    uint64_t thread;
    const struct piece *piece, *end;
    uint32_t n_taken; /* entries of this piece */
    uint32_t n_portion, at;
    uint32_t n_window;
    struct vpmm_trace_entry portion[PORTION];
    struct vpmm_trace_item window[WINDOW]; /* by moment, the last one first to go */
};

struct vpmm_trace_merge {
    struct piece *pieces;
    struct sequence *sequences;
    uint32_t *heap; /* sequences, the one with the earliest item first */
    uint32_t n_pieces, n_sequences, n_heap;
};

static uint64_t chunk_offset(const struct vpmm_trace_header *header, uint64_t chunk)
{
    return header->header_bytes + chunk * header->chunk_bytes;
}

static bool read_failed(struct vpmm_trace_reader *reader)
{
    char room[VPMM_TRACE_ERROR_ROOM];
    return vpmm_trace_damaged(reader, "it cannot be read: %s", vpmm_trace_error_text(errno, room));
}

/* The recorder's may change without a new version; all that follows from them fits 64 bits. */
static bool are_sizes_sound(const struct vpmm_trace_header *header)
{
    return header->header_bytes >= sizeof *header && header->header_bytes <= SIZE_MOST &&
           header->chunk_bytes >= sizeof(struct vpmm_trace_chunk) + header->entry_bytes &&
           header->chunk_bytes <= SIZE_MOST &&
           header->entry_bytes == sizeof(struct vpmm_trace_entry);
}

static bool read_header(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_header *header = &reader->header;
    size_t n;
    if (!vpmm_trace_input_read(&reader->input, 0, header, sizeof *header, &n))
        return read_failed(reader);
    if (n < sizeof *header)
        return vpmm_trace_damaged(reader, "it is cut off in its header");
    if (header->version != VPMM_TRACE_VERSION)
        return vpmm_trace_damaged(reader, "its layout is version %u; this reads version %u",
                                  header->version, VPMM_TRACE_VERSION);
    if (!are_sizes_sound(header))
        return vpmm_trace_damaged(reader, "its header gives sizes that cannot be");
    header->program[sizeof header->program - 1] = '\0';
    vpmm_trace_make_printable(header->program);
    return true;
}

/* ---- the pieces ---- */

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static bool add_piece(struct vpmm_trace_merge *merge, const struct piece *piece)
{
    if ((merge->n_pieces & (merge->n_pieces - 1)) == 0) {
        size_t room = merge->n_pieces ? (size_t)merge->n_pieces * 2 : 1;
        struct piece *pieces = realloc(merge->pieces, room * sizeof *pieces);
        if (!pieces)
            return false;
        merge->pieces = pieces;
    }
    merge->pieces[merge->n_pieces++] = *piece;
    return true;
}

/* A chunk without a mark was given out and not begun. False where the reading has to end. */
static bool look_at_chunk(struct vpmm_trace_reader *reader, uint32_t number)
{
    const struct vpmm_trace_header *header = &reader->header;
    struct vpmm_trace_chunk chunk = {0};
    size_t n;
    uint64_t offset = chunk_offset(header, number);
    if (!vpmm_trace_input_read(&reader->input, offset, &chunk, sizeof chunk, &n))
        return read_failed(reader);
    if (n < sizeof chunk)
        return vpmm_trace_damaged(reader, "it is cut off in chunk %u of %llu", number,
                                  (unsigned long long)header->n_chunks);
    if (chunk.magic == 0 && chunk.n_entries == 0)
        return true;
    if (chunk.magic != VPMM_TRACE_CHUNK_MAGIC)
        return vpmm_trace_damaged(reader, "chunk %u does not begin as a chunk does", number);
    if (chunk.n_entries > (header->chunk_bytes - sizeof chunk) / header->entry_bytes)
        return vpmm_trace_damaged(reader, "chunk %u has more entries than it can have", number);
    const struct piece piece = {chunk.thread, number, chunk.n_entries};
    if (chunk.n_entries && !add_piece(reader->merge, &piece))
        return vpmm_trace_damaged(reader, "there is no memory to read it");
    return true;
}

static void look_at_chunks(struct vpmm_trace_reader *reader)
{
    uint64_t n = reader->header.n_chunks;
    for (uint32_t number = 0; number < n; number++) {
        if (number == UINT32_MAX || !look_at_chunk(reader, number))
            return;
    }
}

/* ---- the sequences ---- */

static bool load_portion(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    size_t n_bytes;
    const struct piece *piece = sequence->piece;
    uint32_t n = piece->n_entries - sequence->n_taken;
    if (n > PORTION)
        n = PORTION;
    uint64_t offset = chunk_offset(&reader->header, piece->chunk) +
                      sizeof(struct vpmm_trace_chunk) +
                      (uint64_t)sequence->n_taken * sizeof(struct vpmm_trace_entry);
    if (!vpmm_trace_input_read(&reader->input, offset, sequence->portion,
                               n * sizeof(struct vpmm_trace_entry), &n_bytes))
        return read_failed(reader);
    reader->facts.bytes_read += n_bytes;
    sequence->at = 0;
    sequence->n_portion = (uint32_t)(n_bytes / sizeof(struct vpmm_trace_entry));
    sequence->n_taken += n;
    if (sequence->n_portion < n)
        return vpmm_trace_damaged(reader, "it is cut off in chunk %u of %llu", piece->chunk,
                                  (unsigned long long)reader->header.n_chunks);
    return true;
}

/* The next entry as it lies in the file, or NULL at the end of the sequence and after damage. */
static const struct vpmm_trace_entry *take_entry(struct vpmm_trace_reader *reader,
                                                 struct sequence *sequence)
{
    while (sequence->at == sequence->n_portion) {
        while (sequence->piece != sequence->end &&
               sequence->n_taken == sequence->piece->n_entries) {
            sequence->piece++;
            sequence->n_taken = 0;
        }
        if (sequence->piece == sequence->end)
            return NULL;
        if (!load_portion(reader, sequence)) {
            sequence->piece = sequence->end;
            if (sequence->n_portion == 0)
                return NULL;
        }
    }
    return &sequence->portion[sequence->at++];
}

/* A program may ask for any size; what it gets has to fit. */
static bool is_sound(const struct vpmm_trace_entry *entry)
{
    bool may_be_any = entry->flags & VPMM_TRACE_IS_FAILED;
    return entry->kind < VPMM_TRACE_KINDS && entry->ns <= BYTES_MOST &&
           (may_be_any || entry->bytes <= BYTES_MOST);
}

static uint64_t moment_of(const struct vpmm_trace_entry *entry)
{
    return entry->kind == VPMM_TRACE_MALLOC ? entry->ns + entry->duration_ns : entry->ns;
}

static void fill_window(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    const struct vpmm_trace_entry *entry;
    while (sequence->n_window < WINDOW && (entry = take_entry(reader, sequence))) {
        if (entry->kind == VPMM_TRACE_NOTHING)
            continue;
        if (!is_sound(entry)) {
            vpmm_trace_damaged(reader, "thread %llu has an entry that cannot be, of kind %u",
                               (unsigned long long)sequence->thread, entry->kind);
            sequence->at = sequence->n_portion;
            sequence->piece = sequence->end;
            return;
        }
        uint64_t moment_ns = moment_of(entry);
        uint32_t at = sequence->n_window++;
        for (; at > 0 && sequence->window[at - 1].moment_ns <= moment_ns; at--)
            sequence->window[at] = sequence->window[at - 1];
        sequence->window[at] = (struct vpmm_trace_item){
            .entry = *entry, .thread = sequence->thread, .moment_ns = moment_ns};
    }
}

/* ---- the merge ---- */

static uint64_t key_of(const struct vpmm_trace_merge *merge, uint32_t place)
{
    const struct sequence *sequence = &merge->sequences[merge->heap[place]];
    return sequence->window[sequence->n_window - 1].moment_ns;
}

static bool is_before(const struct vpmm_trace_merge *merge, uint32_t a, uint32_t b)
{
    uint64_t key_a = key_of(merge, a), key_b = key_of(merge, b);
    return key_a != key_b ? key_a < key_b : merge->heap[a] < merge->heap[b];
}

static void sink(struct vpmm_trace_merge *merge, uint32_t place)
{
    for (;;) {
        uint32_t first = place;
        for (uint64_t child = 2 * (uint64_t)place + 1; child <= 2 * (uint64_t)place + 2; child++) {
            if (child < merge->n_heap && is_before(merge, (uint32_t)child, first))
                first = (uint32_t)child;
        }
        if (first == place)
            return;
        uint32_t sequence = merge->heap[place];
        merge->heap[place] = merge->heap[first];
        merge->heap[first] = sequence;
        place = first;
    }
}

static void finish(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_merge *merge = reader->merge;
    if (!merge)
        return;
    free(merge->pieces);
    free(merge->sequences);
    free(merge->heap);
    free(merge);
    reader->merge = NULL;
}

static void begin_sequences(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_merge *merge = reader->merge;
    uint32_t n = 0;
    for (uint32_t i = 0; i < merge->n_pieces; i++) {
        if (i == 0 || merge->pieces[i].thread != merge->pieces[i - 1].thread) {
            merge->sequences[n].thread = merge->pieces[i].thread;
            merge->sequences[n++].piece = &merge->pieces[i];
        }
        merge->sequences[n - 1].end = &merge->pieces[i] + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        fill_window(reader, &merge->sequences[i]);
        if (merge->sequences[i].n_window)
            merge->heap[merge->n_heap++] = i;
    }
    for (uint32_t i = merge->n_heap / 2; i-- > 0;)
        sink(merge, i);
}

static bool begin(struct vpmm_trace_reader *reader)
{
    finish(reader);
    reader->facts.bytes_read = 0;
    reader->merge = calloc(1, sizeof *reader->merge);
    if (!reader->merge)
        return vpmm_trace_damaged(reader, "there is no memory to read it");
    if (!read_header(reader))
        return false;
    reader->facts.program = reader->header.program;
    reader->facts.pid = reader->header.pid;
    reader->facts.start_unix_ns = reader->header.start_unix_ns;
    reader->facts.dropped = reader->header.dropped;
    reader->facts.is_ended = reader->header.is_ended != 0;
    look_at_chunks(reader);
    struct vpmm_trace_merge *merge = reader->merge;
    if (merge->n_pieces)
        qsort(merge->pieces, merge->n_pieces, sizeof *merge->pieces, compare_pieces);
    for (uint32_t i = 0; i < merge->n_pieces; i++)
        merge->n_sequences += i == 0 || merge->pieces[i].thread != merge->pieces[i - 1].thread;
    merge->sequences = calloc((size_t)merge->n_sequences + 1, sizeof *merge->sequences);
    merge->heap = calloc((size_t)merge->n_sequences + 1, sizeof *merge->heap);
    if (!merge->sequences || !merge->heap)
        return vpmm_trace_damaged(reader, "there is no memory to read it");
    begin_sequences(reader);
    return true;
}

static bool next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    struct vpmm_trace_merge *merge = reader->merge;
    if (merge->n_heap == 0)
        return false;
    struct sequence *sequence = &merge->sequences[merge->heap[0]];
    *item_out = sequence->window[--sequence->n_window];
    fill_window(reader, sequence);
    if (sequence->n_window == 0)
        merge->heap[0] = merge->heap[--merge->n_heap];
    sink(merge, 0);
    return true;
}

const struct vpmm_trace_source vpmm_trace_source_native = {
    .begin = begin, .next = next, .finish = finish};
