/* SPDX-License-Identifier: MIT */
/* An ordered tree over the records of a table. Must not allocate: no insertion may fail. */
#include "base/tree.h"

#include "base/step.h"

/* A bijection of 32-bit numbers that mixes well (the finaliser of MurmurHash3), so no two
 * priorities are equal. */
static uint32_t priority(uint32_t number)
{
    number ^= number >> 16;
    number *= 0x85ebca6bu;
    number ^= number >> 13;
    number *= 0xc2b2ae35u;
    return number ^ number >> 16;
}

static struct vpmm_tree_node *node_of(const struct vpmm_tree *tree, char *record)
{
    return (struct vpmm_tree_node *)(void *)(record + tree->node_offset);
}

static struct vpmm_tree_node *node_at(const struct vpmm_tree *tree, uint32_t number)
{
    return node_of(tree, vpmm_table_record(tree->records, number));
}

static struct vpmm_tree_key key_at(const struct vpmm_tree *tree, uint32_t number)
{
    return tree->key(vpmm_table_record(tree->records, number));
}

/* The node of `number`; `*is_below_out` tells whether it lies below `key`. */
static struct vpmm_tree_node *compare(const struct vpmm_tree *tree, uint32_t number,
                                      const struct vpmm_tree_key *key, bool *is_below_out)
{
    char *record = vpmm_table_record(tree->records, number);
    VPMM_STEP();
    *is_below_out = tree->is_below(record, key);
    return node_of(tree, record);
}

/* The link of `number` that leads towards `key`. */
static uint32_t *link_towards(const struct vpmm_tree *tree, uint32_t number,
                              const struct vpmm_tree_key *key)
{
    bool goes_right;
    struct vpmm_tree_node *node = compare(tree, number, key, &goes_right);
    return goes_right ? &node->right : &node->left;
}

void vpmm_tree_insert(struct vpmm_tree *tree, uint32_t number)
{
    VPMM_STEP();
    struct vpmm_tree_key key = key_at(tree, number);
    uint32_t own_priority = priority(number);
    uint32_t *link = &tree->top;
    while (*link && priority(*link) > own_priority)
        link = link_towards(tree, *link, &key);

    uint32_t rest = *link;
    *link = number;
    uint32_t *below = &node_at(tree, number)->left;
    uint32_t *above = &node_at(tree, number)->right;
    while (rest) {
        bool lies_below;
        struct vpmm_tree_node *node = compare(tree, rest, &key, &lies_below);
        if (lies_below) {
            *below = rest;
            below = &node->right;
            rest = node->right;
        } else {
            *above = rest;
            above = &node->left;
            rest = node->left;
        }
    }
    *below = 0;
    *above = 0;
}

void vpmm_tree_remove(struct vpmm_tree *tree, uint32_t number)
{
    VPMM_STEP();
    struct vpmm_tree_key key = key_at(tree, number);
    uint32_t *link = &tree->top;
    while (*link != number)
        link = link_towards(tree, *link, &key);

    uint32_t below = node_at(tree, number)->left;
    uint32_t above = node_at(tree, number)->right;
    while (below && above) {
        VPMM_STEP();
        if (priority(below) > priority(above)) {
            *link = below;
            link = &node_at(tree, below)->right;
            below = *link;
        } else {
            *link = above;
            link = &node_at(tree, above)->left;
            above = *link;
        }
    }
    *link = below ? below : above;
}

uint32_t vpmm_tree_first_from(const struct vpmm_tree *tree, struct vpmm_tree_key key)
{
    uint32_t found = 0;
    for (uint32_t at = tree->top; at;) {
        bool lies_below;
        const struct vpmm_tree_node *node = compare(tree, at, &key, &lies_below);
        if (!lies_below)
            found = at;
        at = lies_below ? node->right : node->left;
    }
    return found;
}

uint32_t vpmm_tree_last_before(const struct vpmm_tree *tree, struct vpmm_tree_key key)
{
    uint32_t found = 0;
    for (uint32_t at = tree->top; at;) {
        bool lies_below;
        const struct vpmm_tree_node *node = compare(tree, at, &key, &lies_below);
        if (lies_below)
            found = at;
        at = lies_below ? node->right : node->left;
    }
    return found;
}
