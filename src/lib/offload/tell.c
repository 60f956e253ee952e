/* SPDX-License-Identifier: MIT */
/* One sentence for each call that fails, where the caller wants it. Must not allocate. */
#include "base/text.h"
#include "offload/offload_internal.h"

#include <stdarg.h>

static void begin(struct vpmm_offload *offload, struct vpmm_text *text)
{
    bool is_wanted = offload->params.message && offload->params.message_room;
    if (is_wanted)
        vpmm_text_init(text, offload->params.message, offload->params.message_room, VPMM_TEXT_CUT);
    else
        vpmm_text_init(text, offload->nowhere, sizeof offload->nowhere, VPMM_TEXT_CUT);
}

enum vpmm_status offload_tell(struct vpmm_offload *offload, enum vpmm_status status, ...)
{
    struct vpmm_text text;
    va_list pieces;
    begin(offload, &text);
    va_start(pieces, status);
    for (const char *piece = va_arg(pieces, const char *); piece;
         piece = va_arg(pieces, const char *))
        vpmm_text_string(&text, piece);
    va_end(pieces);
    return status;
}

enum vpmm_status offload_tell_bytes(struct vpmm_offload *offload, enum vpmm_status status,
                                    const char *before, uint64_t bytes, const char *between,
                                    uint64_t more_bytes, const char *after)
{
    struct vpmm_text text;
    begin(offload, &text);
    vpmm_text_string(&text, before);
    vpmm_text_decimal(&text, bytes, 0);
    vpmm_text_string(&text, between);
    vpmm_text_decimal(&text, more_bytes, 0);
    vpmm_text_string(&text, after);
    return status;
}

enum vpmm_status offload_tell_status(struct vpmm_offload *offload, enum vpmm_status status,
                                     const char *piece)
{
    return offload_tell(offload, status, piece, ": ", vpmm_status_text(status), (char *)NULL);
}

const char *offload_group_name(struct vpmm_offload *offload, const struct offload_group *group)
{
    return offload_weight(offload, group->first_weight)->name;
}

void offload_tell_watch(struct vpmm_offload *offload, enum vpmm_watch_kind kind, uint64_t address,
                        uint64_t bytes)
{
    const struct vpmm_watch *watch = offload->params.watch;
    vpmm_watch_tell(watch, &(struct vpmm_watch_event){
                               .kind = kind,
                               .device = offload->params.device,
                               .address = address,
                               .bytes = bytes,
                               .begin_ns = vpmm_watch_now_ns(watch),
                           });
}
