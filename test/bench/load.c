/* SPDX-License-Identifier: MIT */
#include "load.h"

#include "trace/reader.h"

#include <stdio.h>

static bool next(void *self, struct vpmm_trace_item *item_out)
{
    return vpmm_trace_next(self, item_out);
}

bool load_tape(const char *path, uint64_t least_bytes, struct vpmm_tape *tape_out,
               char *message_out)
{
    struct vpmm_trace_reader *reader;
    const struct vpmm_tape_choice choice = {.least_bytes = least_bytes, .device = -1};
    if (vpmm_trace_open(path, VPMM_TRACE_FORM_UNKNOWN, &reader, message_out) != VPMM_OK)
        return false;
    const struct vpmm_tape_source source = {next, reader};
    enum vpmm_status status = vpmm_tape_read(&source, &choice, tape_out);
    const char *damage = status ? vpmm_status_text(status) : vpmm_trace_damage(reader);
    if (damage)
        (void)snprintf(message_out, LOAD_MESSAGE_BYTES, "%s", damage);
    if (damage && !status)
        vpmm_tape_finish(tape_out);
    vpmm_trace_close(reader);
    return !damage;
}
