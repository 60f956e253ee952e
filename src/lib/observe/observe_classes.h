/* SPDX-License-Identifier: MIT */
/* Blocks that share pages, a row for each class, as dumps and statistics show them. It knows rows,
 * not slabs: whoever calls it supplies them. No lock, no allocation, no driver; any thread, also in
 * a signal handler. */
#ifndef VPMM_OBSERVE_CLASSES_H
#define VPMM_OBSERVE_CLASSES_H

#include "base/text.h"

#include <stdint.h>

#define VPMM_CLASS_FILLS 4u
struct vpmm_class_row {
    const char *name; /* a static text */
    uint64_t pages, blocks, requested_bytes, free_bytes;
    uint64_t pages_by_fill[VPMM_CLASS_FILLS]; /* up to 1/4, 1/2, 3/4 and more are in live blocks */
};

/* A heading and a line for each of the `n` rows; nothing where there are none. */
void vpmm_classes_text(struct vpmm_text *text, const struct vpmm_class_row *rows, unsigned n);
/* The member "small" of a JSON object, a list. */
void vpmm_classes_json(struct vpmm_text *text, const struct vpmm_class_row *rows, unsigned n);

#endif
