/* SPDX-License-Identifier: MIT */
/* An ordered tree over the records of a table, linked by their numbers: a treap whose priorities
 * are hashed from the numbers, so that no record needs more than two links and no order of
 * insertion is a bad one. The node lies inside the record; the key is computed from it and must not
 * change while the record is in a tree. The owner serialises all calls. */
#ifndef VPMM_BASE_TREE_H
#define VPMM_BASE_TREE_H

#include "base/table.h"

#include <stdbool.h>

/* Ordered by major, then by middle, then by minor. */
struct vpmm_tree_key {
    uint64_t major, middle, minor;
};

struct vpmm_tree_node {
    uint32_t left, right; /* numbers of records; 0: none */
};

static inline bool vpmm_tree_key_is_below(struct vpmm_tree_key a, const struct vpmm_tree_key *b)
{
    if (a.major != b->major)
        return a.major < b->major;
    if (a.middle != b->middle)
        return a.middle < b->middle;
    return a.minor < b->minor;
}

struct vpmm_tree {
    const struct vpmm_table *records;
    size_t node_offset; /* of the vpmm_tree_node in a record */
    struct vpmm_tree_key (*key)(const void *record);
    /* The same as vpmm_tree_key_is_below of that key: one call a step, and nothing copied. */
    bool (*is_below)(const void *record, const struct vpmm_tree_key *key);
    uint32_t top;
};

/* Puts `number`, which is in no tree through this node and whose key is not in this tree, into it.
 * O(log n). */
void vpmm_tree_insert(struct vpmm_tree *tree, uint32_t number);

/* Takes `number`, which is in the tree, out of it. O(log n). */
void vpmm_tree_remove(struct vpmm_tree *tree, uint32_t number);

/* The number with the smallest key that is not below `key`; 0 when there is none. O(log n). */
uint32_t vpmm_tree_first_from(const struct vpmm_tree *tree, struct vpmm_tree_key key);

/* The number with the greatest key below `key`; 0 when there is none. O(log n). */
uint32_t vpmm_tree_last_before(const struct vpmm_tree *tree, struct vpmm_tree_key key);

#endif
