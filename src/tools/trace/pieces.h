/* SPDX-License-Identifier: MIT */
/* Finds what each thread wrote in a file of this library's own form: whole chunks, and parts of
 * those that several threads went on with. Private to this folder. */
#ifndef VPMM_TRACE_PIECES_H
#define VPMM_TRACE_PIECES_H

#include "trace/trace_internal.h"

#define VPMM_TRACE_PORTION 64u

/* When an entry took effect. */
static inline uint64_t vpmm_trace_moment_ns(const struct vpmm_trace_entry *entry)
{
    return entry->kind == VPMM_TRACE_MALLOC ? entry->ns + entry->duration_ns : entry->ns;
}

/* What a thread wrote into a chunk, one after the other. */
struct vpmm_trace_piece {
    uint64_t thread;
    uint64_t moment_ns; /* of its first entry: numbers of threads are used again */
    uint32_t chunk, first, n_entries;
};

/* `pieces` are malloc's and the caller's; all zero at first. */
struct vpmm_trace_pieces {
    struct vpmm_trace_piece *pieces;
    uint32_t n;
};

/* All pieces, by thread and then in the order in which it wrote them; up to the first damage, which
 * the reader remembers. */
void vpmm_trace_pieces_find(struct vpmm_trace_reader *reader, struct vpmm_trace_pieces *list);

/* `n` entries, no more than a portion, of `chunk` from its entry `first` on, or as many as there
 * are. False where reading fails, which the reader remembers. */
bool vpmm_trace_pieces_load(struct vpmm_trace_reader *reader, uint32_t chunk, uint32_t first,
                            uint32_t n,
                            struct vpmm_trace_entry entries_out[static VPMM_TRACE_PORTION],
                            uint32_t *n_out);

/* Damage that the reader remembers: the file ends in `chunk`, or (errno) cannot be read. They
 * return false. */
bool vpmm_trace_pieces_cut_off(struct vpmm_trace_reader *reader, uint32_t chunk);
bool vpmm_trace_read_failed(struct vpmm_trace_reader *reader);

#endif
