/* SPDX-License-Identifier: MIT */
/* Writes the classes of blocks that share pages, as text or JSON. Runs in a signal handler, so it
 * must not lock, allocate or call the driver. */
#include "observe/observe_classes.h"

void vpmm_classes_text(struct vpmm_text *text, const struct vpmm_class_row *rows, unsigned n)
{
    if (n)
        vpmm_text_string(text, "  small blocks       pages      blocks   requested bytes"
                               "        free bytes  full: to 1/4    to 1/2    to 3/4      more\n");
    for (unsigned i = 0; i < n; i++) {
        vpmm_text_string(text, "  ");
        vpmm_text_padded(text, rows[i].name, 12);
        vpmm_text_decimal(text, rows[i].pages, 12);
        vpmm_text_decimal(text, rows[i].blocks, 12);
        vpmm_text_decimal(text, rows[i].requested_bytes, 18);
        vpmm_text_decimal(text, rows[i].free_bytes, 18);
        for (unsigned j = 0; j < VPMM_CLASS_FILLS; j++)
            vpmm_text_decimal(text, rows[i].pages_by_fill[j], j ? 10 : 14);
        vpmm_text_char(text, '\n');
    }
}

static void json_number(struct vpmm_text *text, const char *key, uint64_t value)
{
    vpmm_text_string(text, ", ");
    vpmm_text_quoted(text, key);
    vpmm_text_string(text, ": ");
    vpmm_text_decimal(text, value, 0);
}

void vpmm_classes_json(struct vpmm_text *text, const struct vpmm_class_row *rows, unsigned n)
{
    vpmm_text_string(text, "\"small\": [");
    for (unsigned i = 0; i < n; i++) {
        vpmm_text_string(text, i ? ",\n{\"class\": " : "\n{\"class\": ");
        vpmm_text_quoted(text, rows[i].name);
        json_number(text, "pages", rows[i].pages);
        json_number(text, "blocks", rows[i].blocks);
        json_number(text, "requested_bytes", rows[i].requested_bytes);
        json_number(text, "free_bytes", rows[i].free_bytes);
        vpmm_text_string(text, ", \"pages_by_fill\": [");
        for (unsigned j = 0; j < VPMM_CLASS_FILLS; j++) {
            vpmm_text_string(text, j ? ", " : "");
            vpmm_text_decimal(text, rows[i].pages_by_fill[j], 0);
        }
        vpmm_text_string(text, "]}");
    }
    vpmm_text_char(text, ']');
}
