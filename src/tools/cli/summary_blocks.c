/* SPDX-License-Identifier: MIT */
/* Groups the blocks that were live at the peak by what they have in common. Must not change the
 * table of live blocks. */
#include "cli/summary.h"

#include <stdlib.h>

enum common {
    SIZE,
    STREAM,
    THREAD
};

static uint64_t key_of(const struct vpmm_live_block *block, enum common common)
{
    switch (common) {
    case SIZE:
        return block->bytes;
    case STREAM:
        return block->stream;
    case THREAD:
    default:
        return block->thread;
    }
}

static int compare_keys(const void *left, const void *right)
{
    const struct vpmm_summary_group *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* The one with more bytes first. */
static int compare_bytes(const void *left, const void *right)
{
    const struct vpmm_summary_group *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return compare_keys(left, right);
}

/* Groups in `groups`, which has room for one for each block; how many there are. */
static size_t gather(const struct vpmm_live *live, enum common common,
                     struct vpmm_summary_group *groups)
{
    size_t n = 0, n_groups = 0;
    for (size_t i = 0; i < live->room; i++) {
        const struct vpmm_live_block *block = &live->blocks[i];
        if (block->address)
            groups[n++] = (struct vpmm_summary_group){key_of(block, common), 1, block->bytes};
    }
    qsort(groups, n, sizeof *groups, compare_keys);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && groups[i].key == groups[n_groups - 1].key) {
            groups[n_groups - 1].n++;
            groups[n_groups - 1].bytes += groups[i].bytes;
        } else {
            groups[n_groups++] = groups[i];
        }
    }
    qsort(groups, n_groups, sizeof *groups, compare_bytes);
    return n_groups;
}

static unsigned keep_first(const struct vpmm_summary_group *groups, size_t n,
                           struct vpmm_summary_group *kept)
{
    unsigned n_kept = n < VPMM_SUMMARY_GROUPS ? (unsigned)n : VPMM_SUMMARY_GROUPS;
    for (unsigned i = 0; i < n_kept; i++)
        kept[i] = groups[i];
    return n_kept;
}

bool vpmm_summary_group(const struct vpmm_live *live, struct vpmm_summary_blocks *blocks_out)
{
    *blocks_out = (struct vpmm_summary_blocks){0};
    struct vpmm_summary_group *groups = calloc(live->n + 1, sizeof *groups);
    if (!groups)
        return false;
    blocks_out->all_streams = gather(live, STREAM, groups);
    blocks_out->n_streams = keep_first(groups, blocks_out->all_streams, blocks_out->streams);
    blocks_out->all_threads = gather(live, THREAD, groups);
    blocks_out->n_threads = keep_first(groups, blocks_out->all_threads, blocks_out->threads);
    blocks_out->all_sizes = gather(live, SIZE, groups);
    blocks_out->n_sizes = keep_first(groups, blocks_out->all_sizes, blocks_out->sizes);
    for (size_t i = 0; i < blocks_out->all_sizes; i++) {
        blocks_out->all.n += groups[i].n;
        blocks_out->all.bytes += groups[i].bytes;
    }
    free(groups);
    return true;
}
