/* SPDX-License-Identifier: MIT */
/* This library's own form. The pieces of each thread are two sequences, its frees and all else, and
 * the sequences are merged by time. What is read is what the file said when reading began: a
 * process may still write it. Must not trust a number in the file. */
#include "trace/trace_internal.h"
#include "trace/pieces.h"

#include <stdlib.h>
#include <string.h>

/* An entry is written when its call ends, behind those of calls within. A free takes effect when it
 * begins, and any number of unmaps may be within it, so frees are a sequence of their own. All else
 * stands at most so many places too late. */
#define WINDOW 16u
#define SIZE_MOST (1u << 24)
#define BYTES_MOST (UINT64_MAX >> 4)

struct buffers {
    uint32_t n_portion, at;
    uint32_t n_window;
    struct vpmm_trace_entry portion[VPMM_TRACE_PORTION];
    struct vpmm_trace_item window[WINDOW]; /* by moment, the last one first to go */
    uint64_t places[WINDOW];               /* of each item: entries of its thread up to it */
};

/* The frees of a thread, or all else of it. Both go through all entries of the thread. Has buffers
 * from its first item to its last only: there may be many threads in turn. */
struct sequence {
    uint64_t thread;
    bool is_of_frees;
    const struct vpmm_trace_piece *piece, *end;
    uint32_t n_taken;               /* entries of this piece that were loaded */
    uint64_t n_passed;              /* entries of all pieces that were looked at */
    uint64_t first_ns, first_place; /* of its first item */
    struct buffers *buffers;
};

struct vpmm_trace_merge {
    struct vpmm_trace_pieces pieces;
    struct sequence *sequences; /* two of each thread, one behind the other */
    uint32_t *heap;             /* sequences, the one with the earliest item first */
    uint32_t n_sequences, n_heap;
    char damage[VPMM_TRACE_DAMAGE_ROOM]; /* at which the pieces end */
};

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
        return vpmm_trace_read_failed(reader);
    if (n < sizeof *header)
        return vpmm_trace_damaged(reader, "it is cut off in its header");
    if (header->version < VPMM_TRACE_VERSION_LEAST || header->version > VPMM_TRACE_VERSION)
        return vpmm_trace_damaged(reader, "its layout is version %u; this reads versions %u to %u",
                                  header->version, VPMM_TRACE_VERSION_LEAST, VPMM_TRACE_VERSION);
    if (!are_sizes_sound(header))
        return vpmm_trace_damaged(reader, "its header gives sizes that cannot be");
    header->program[sizeof header->program - 1] = '\0';
    vpmm_trace_make_printable(header->program);
    return true;
}

/* ---- the sequences ---- */

static bool load_portion(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    const struct vpmm_trace_piece *piece = sequence->piece;
    struct buffers *buffers = sequence->buffers;
    uint32_t n = piece->n_entries - sequence->n_taken;
    if (n > VPMM_TRACE_PORTION)
        n = VPMM_TRACE_PORTION;
    buffers->at = buffers->n_portion = 0;
    if (!vpmm_trace_pieces_load(reader, piece->chunk, piece->first + sequence->n_taken, n,
                                buffers->portion, &buffers->n_portion))
        return false;
    /* Once for both sequences of the thread. */
    if (!sequence->is_of_frees)
        reader->facts.bytes_read += buffers->n_portion * sizeof *buffers->portion;
    sequence->n_taken += n;
    return buffers->n_portion == n || vpmm_trace_pieces_cut_off(reader, piece->chunk);
}

/* The next entry as it lies in the file, or NULL at the end of the sequence and after damage. */
static const struct vpmm_trace_entry *take_entry(struct vpmm_trace_reader *reader,
                                                 struct sequence *sequence)
{
    struct buffers *buffers = sequence->buffers;
    while (buffers->at == buffers->n_portion) {
        while (sequence->piece != sequence->end &&
               sequence->n_taken == sequence->piece->n_entries) {
            sequence->piece++;
            sequence->n_taken = 0;
        }
        if (sequence->piece == sequence->end)
            return NULL;
        if (!load_portion(reader, sequence)) {
            sequence->piece = sequence->end;
            if (buffers->n_portion == 0)
                return NULL;
        }
    }
    sequence->n_passed++;
    return &buffers->portion[buffers->at++];
}

/* A program may ask for any size; what it gets has to fit. */
static bool is_sound(const struct vpmm_trace_entry *entry)
{
    bool may_be_any = entry->flags & VPMM_TRACE_IS_FAILED;
    return entry->kind != VPMM_TRACE_THREAD && entry->kind < VPMM_TRACE_KINDS &&
           entry->ns <= BYTES_MOST && (may_be_any || entry->bytes <= BYTES_MOST);
}

static void fill_window(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    const struct vpmm_trace_entry *entry;
    struct buffers *buffers = sequence->buffers;
    while (buffers->n_window < WINDOW && (entry = take_entry(reader, sequence))) {
        if (entry->kind == VPMM_TRACE_NOTHING)
            continue;
        if (!is_sound(entry)) {
            vpmm_trace_damaged(reader, "thread %llu has an entry that cannot be, of kind %u",
                               (unsigned long long)sequence->thread, entry->kind);
            buffers->at = buffers->n_portion;
            sequence->piece = sequence->end;
            return;
        }
        if ((entry->kind == VPMM_TRACE_FREE) != sequence->is_of_frees)
            continue;
        uint64_t moment_ns = vpmm_trace_moment_ns(entry);
        uint32_t at = buffers->n_window++;
        for (; at > 0 && buffers->window[at - 1].moment_ns <= moment_ns; at--) {
            buffers->window[at] = buffers->window[at - 1];
            buffers->places[at] = buffers->places[at - 1];
        }
        buffers->places[at] = sequence->n_passed;
        buffers->window[at] = (struct vpmm_trace_item){
            .entry = *entry, .thread = sequence->thread, .moment_ns = moment_ns};
    }
}

/* ---- the merge ---- */

/* When its next item is, and the place of that in its thread. */
static uint64_t moment_of(const struct sequence *sequence)
{
    const struct buffers *buffers = sequence->buffers;
    return buffers ? buffers->window[buffers->n_window - 1].moment_ns : sequence->first_ns;
}

static uint64_t place_of(const struct sequence *sequence)
{
    const struct buffers *buffers = sequence->buffers;
    return buffers ? buffers->places[buffers->n_window - 1] : sequence->first_place;
}

/* Items of one moment are in the order of the threads, and those of one thread as in the file. */
static bool is_before(const struct vpmm_trace_merge *merge, uint32_t a, uint32_t b)
{
    uint32_t number_a = merge->heap[a], number_b = merge->heap[b];
    const struct sequence *first = &merge->sequences[number_a];
    const struct sequence *second = &merge->sequences[number_b];
    if (moment_of(first) != moment_of(second))
        return moment_of(first) < moment_of(second);
    bool are_of_one_thread = number_a / 2 == number_b / 2;
    return are_of_one_thread ? place_of(first) < place_of(second) : number_a < number_b;
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

static void forget_sequences(struct vpmm_trace_merge *merge)
{
    for (uint32_t i = 0; merge->sequences && i < merge->n_sequences; i++) {
        free(merge->sequences[i].buffers);
        merge->sequences[i] = (struct sequence){0};
    }
    merge->n_heap = 0;
}

static void finish(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_merge *merge = reader->merge;
    if (!merge)
        return;
    forget_sequences(merge);
    free(merge->pieces.pieces);
    free(merge->sequences);
    free(merge->heap);
    free(merge);
    reader->merge = NULL;
}

/* Whether it has any, and what is told of the first one. */
static bool has_items(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    struct buffers buffers = {0};
    struct sequence copy = *sequence;
    copy.buffers = &buffers;
    fill_window(reader, &copy);
    if (buffers.n_window == 0)
        return false;
    sequence->first_ns = moment_of(&copy);
    sequence->first_place = place_of(&copy);
    return true;
}

/* Who goes on with a chunk has only begun, whatever its number was before. */
static bool begins_sequence(const struct vpmm_trace_piece *pieces, uint32_t i)
{
    return i == 0 || pieces[i].thread != pieces[i - 1].thread || pieces[i].first > 0;
}

static void begin_sequences(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_merge *merge = reader->merge;
    const struct vpmm_trace_piece *pieces = merge->pieces.pieces;
    uint32_t n = 0;
    for (uint32_t i = 0; i < merge->pieces.n; i++) {
        if (begins_sequence(pieces, i)) {
            const struct sequence begun = {.thread = pieces[i].thread, .piece = &pieces[i]};
            merge->sequences[n++] = begun;
            merge->sequences[n++] = begun;
            merge->sequences[n - 1].is_of_frees = true;
        }
        merge->sequences[n - 2].end = merge->sequences[n - 1].end = &pieces[i] + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (has_items(reader, &merge->sequences[i]))
            merge->heap[merge->n_heap++] = i;
    }
    for (uint32_t i = merge->n_heap / 2; i-- > 0;)
        sink(merge, i);
    reader->facts.bytes_read = 0;
}

/* With the pieces of the first time. What threads have written since may be of calls that began
 * before the last item of then. */
static bool begin_again(struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_merge *merge = reader->merge;
    memcpy(reader->damage, merge->damage, sizeof reader->damage);
    forget_sequences(merge);
    begin_sequences(reader);
    return true;
}

static bool begin(struct vpmm_trace_reader *reader)
{
    if (reader->merge)
        return begin_again(reader);
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
    struct vpmm_trace_merge *merge = reader->merge;
    vpmm_trace_pieces_find(reader, &merge->pieces);
    memcpy(merge->damage, reader->damage, sizeof merge->damage);
    const struct vpmm_trace_piece *pieces = merge->pieces.pieces;
    for (uint32_t i = 0; i < merge->pieces.n; i++)
        merge->n_sequences += begins_sequence(pieces, i) ? 2 : 0;
    merge->sequences = calloc((size_t)merge->n_sequences + 1, sizeof *merge->sequences);
    merge->heap = calloc((size_t)merge->n_sequences + 1, sizeof *merge->heap);
    if (!merge->sequences || !merge->heap)
        return vpmm_trace_damaged(reader, "there is no memory to read it");
    begin_sequences(reader);
    return true;
}

static bool open_sequence(struct vpmm_trace_reader *reader, struct sequence *sequence)
{
    if (sequence->buffers)
        return true;
    sequence->buffers = calloc(1, sizeof *sequence->buffers);
    if (!sequence->buffers)
        return vpmm_trace_damaged(reader, "there is no memory to read it");
    fill_window(reader, sequence);
    return sequence->buffers->n_window > 0;
}

static bool next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    struct vpmm_trace_merge *merge = reader->merge;
    if (merge->n_heap == 0)
        return false;
    struct sequence *sequence = &merge->sequences[merge->heap[0]];
    if (!open_sequence(reader, sequence)) {
        merge->n_heap = 0;
        return false;
    }
    struct buffers *buffers = sequence->buffers;
    *item_out = buffers->window[--buffers->n_window];
    fill_window(reader, sequence);
    if (buffers->n_window == 0) {
        free(buffers);
        sequence->buffers = NULL;
        merge->heap[0] = merge->heap[--merge->n_heap];
    }
    sink(merge, 0);
    return true;
}

const struct vpmm_trace_source vpmm_trace_source_native = {
    .begin = begin, .next = next, .finish = finish};
