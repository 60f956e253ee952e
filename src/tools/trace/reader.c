/* SPDX-License-Identifier: MIT */
/* Reads any form of trace as one sequence of items. Must not take memory that grows with the length
 * of the file. */
#define _POSIX_C_SOURCE 200809L
#include "trace/trace_internal.h"

#include "trace/form.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_ROOM 256
#define FORMS_READ                                                                                 \
    "a trace of this library, CSV (A,ADDRESS,BYTES,STREAM,US,KIND), a log of RMM or a memory "     \
    "snapshot of PyTorch"

void vpmm_trace_make_printable(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

bool vpmm_trace_damaged(struct vpmm_trace_reader *reader, const char *format, ...)
{
    va_list arguments;
    if (reader->damage[0])
        return false;
    int length = snprintf(reader->damage, sizeof reader->damage, "%s: ", reader->name);
    va_start(arguments, format);
    (void)vsnprintf(reader->damage + length, sizeof reader->damage - (size_t)length, format,
                    arguments);
    va_end(arguments);
    vpmm_trace_make_printable(reader->damage);
    return false;
}

/* ---- which form ---- */

/* NULL with `reader->damage` told. */
static const struct vpmm_trace_source *choose_source(struct vpmm_trace_reader *reader,
                                                     enum vpmm_trace_form form)
{
    char head[VPMM_TRACE_HEAD_ROOM] = "";
    const char *complaint;
    size_t n = vpmm_trace_input_peek(&reader->input, head, sizeof head - 1, &complaint);
    if (complaint) {
        vpmm_trace_damaged(reader, "%s", complaint);
        return NULL;
    }
    enum vpmm_trace_form found = vpmm_trace_form_found(head, n);
    reader->facts.form = form == VPMM_TRACE_FORM_UNKNOWN ? found : form;
    switch (reader->facts.form) {
    case VPMM_TRACE_FORM_VPMM:
        if (found != VPMM_TRACE_FORM_VPMM)
            vpmm_trace_damaged(reader, "not a trace of this library: it begins otherwise");
        else if (!vpmm_trace_input_inflate(&reader->input))
            vpmm_trace_damaged(reader, "it cannot be decompressed: %s",
                               vpmm_trace_error_text(errno, reader->input.error_text));
        return reader->damage[0] ? NULL : &vpmm_trace_source_native;
    case VPMM_TRACE_FORM_CSV:
        return &vpmm_trace_source_csv;
    case VPMM_TRACE_FORM_RMM:
        return &vpmm_trace_source_rmm;
    case VPMM_TRACE_FORM_SNAPSHOT:
        vpmm_trace_damaged(reader, "a snapshot of PyTorch, which is to be imported first");
        return NULL;
    case VPMM_TRACE_FORM_UNKNOWN:
    case VPMM_TRACE_FORM_CHROME:
    default:
        vpmm_trace_damaged(reader, n ? "none of the forms that are read: " FORMS_READ
                                     : "it is empty; what is read is " FORMS_READ);
        return NULL;
    }
}

/* ---- opening ---- */

static enum vpmm_status fail(struct vpmm_trace_reader *reader, enum vpmm_status status,
                             char *message_out)
{
    memcpy(message_out, reader->damage, MESSAGE_ROOM);
    vpmm_trace_close(reader);
    return status;
}

static enum vpmm_status say(char *message_out, enum vpmm_status status, const char *name,
                            const char *text)
{
    (void)snprintf(message_out, MESSAGE_ROOM, "%.150s: %.90s", name, text);
    vpmm_trace_make_printable(message_out);
    return status;
}

enum vpmm_status vpmm_trace_open_fd(int fd, const char *name, enum vpmm_trace_form form,
                                    struct vpmm_trace_reader **reader_out,
                                    char message_out[static MESSAGE_ROOM])
{
    struct vpmm_trace_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return say(message_out, VPMM_NO_METADATA, name, "there is no memory to read it");
    (void)snprintf(reader->name, sizeof reader->name, "%s", name);
    reader->facts.program = "";
    enum vpmm_status status = vpmm_trace_input_open(&reader->input, fd, form);
    if (status != VPMM_OK) {
        vpmm_trace_damaged(reader, "%s", vpmm_trace_error_text(errno, reader->input.error_text));
        return fail(reader, status, message_out);
    }
    reader->facts.bytes = reader->input.bytes;
    reader->source = choose_source(reader, form);
    if (!reader->source)
        return fail(reader,
                    reader->facts.form == VPMM_TRACE_FORM_SNAPSHOT ? VPMM_NOT_SUPPORTED
                                                                   : VPMM_INVALID,
                    message_out);
    reader->facts.bytes = reader->input.bytes;
    if (!reader->source->begin(reader))
        return fail(reader, VPMM_INVALID, message_out);
    *reader_out = reader;
    return VPMM_OK;
}

enum vpmm_status vpmm_trace_open(const char *path, enum vpmm_trace_form form,
                                 struct vpmm_trace_reader **reader_out,
                                 char message_out[static MESSAGE_ROOM])
{
    if (strcmp(path, "-") == 0)
        return vpmm_trace_open_fd(STDIN_FILENO, "standard input", form, reader_out, message_out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        char room[VPMM_TRACE_ERROR_ROOM];
        return say(message_out, VPMM_NOT_FOUND, path, vpmm_trace_error_text(errno, room));
    }
    enum vpmm_status status = vpmm_trace_open_fd(fd, path, form, reader_out, message_out);
    close(fd);
    return status;
}

void vpmm_trace_close(struct vpmm_trace_reader *reader)
{
    if (!reader)
        return;
    if (reader->source && reader->source->finish)
        reader->source->finish(reader);
    vpmm_trace_input_close(&reader->input);
    vpmm_live_finish(&reader->live);
    free(reader);
}

bool vpmm_trace_rewind(struct vpmm_trace_reader *reader)
{
    vpmm_live_clear(&reader->live);
    reader->damage[0] = '\0';
    reader->is_over = reader->is_held_back = false;
    reader->moment_ns = reader->live_bytes = 0;
    reader->is_over = !reader->source->begin(reader);
    return !reader->is_over;
}

/* ---- items ---- */

static bool note_malloc(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    struct vpmm_live_block before;
    const struct vpmm_live_block block = {.address = entry->address,
                                          .bytes = entry->bytes,
                                          .stream = entry->stream,
                                          .thread = item->thread,
                                          .moment_ns = item->moment_ns,
                                          .device = entry->device,
                                          .path = entry->path,
                                          .flags = entry->flags};
    item->is_known = entry->address && !(entry->flags & VPMM_TRACE_IS_FAILED);
    if (!item->is_known)
        return true;
    bool is_served_twice = vpmm_live_take(&reader->live, entry->address, &before);
    if (is_served_twice && reader->source->is_strict)
        return vpmm_trace_line_damaged(reader, "the address is allocated already");
    reader->live_bytes -= is_served_twice ? before.bytes : 0;
    if (__builtin_add_overflow(reader->live_bytes, entry->bytes, &reader->live_bytes))
        return vpmm_trace_damaged(reader, "more is live at one time than an address space holds");
    if (!vpmm_live_put(&reader->live, &block))
        return vpmm_trace_damaged(reader, "there is no memory for all that is live");
    if (!is_served_twice)
        return true;
    reader->held_back = *item;
    reader->is_held_back = true;
    *item = (struct vpmm_trace_item){
        .entry = {.ns = item->moment_ns,
                  .kind = VPMM_TRACE_FREE,
                  .path = before.path,
                  .device = before.device,
                  .flags = before.flags,
                  .address = before.address,
                  .bytes = before.bytes,
                  .stream = before.stream},
        .moment_ns = item->moment_ns,
        .is_known = true,
        .is_made_up = true,
    };
    return true;
}

static bool note_free(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item)
{
    struct vpmm_live_block block;
    if (item->entry.flags & VPMM_TRACE_IS_FAILED)
        return true;
    item->is_known = vpmm_live_take(&reader->live, item->entry.address, &block);
    if (item->is_known) {
        reader->live_bytes -= block.bytes;
        item->entry.bytes = block.bytes;
        item->entry.device = block.device;
    } else if (reader->source->is_strict) {
        return vpmm_trace_line_damaged(reader, "the address is freed while it is not allocated");
    }
    return true;
}

static bool give_next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    if (reader->is_held_back) {
        reader->is_held_back = false;
        *item_out = reader->held_back;
        return true;
    }
    if (!reader->source->next(reader, item_out))
        return false;
    if (item_out->moment_ns < reader->moment_ns)
        item_out->moment_ns = reader->moment_ns;
    reader->moment_ns = item_out->moment_ns;
    if (item_out->entry.kind == VPMM_TRACE_MALLOC)
        return note_malloc(reader, item_out);
    return item_out->entry.kind != VPMM_TRACE_FREE || note_free(reader, item_out);
}

bool vpmm_trace_next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    if (!reader->is_over)
        reader->is_over = !give_next(reader, item_out);
    return !reader->is_over;
}

const char *vpmm_trace_damage(const struct vpmm_trace_reader *reader)
{
    return reader->is_over && reader->damage[0] ? reader->damage : NULL;
}

struct vpmm_trace_facts vpmm_trace_reader_facts(const struct vpmm_trace_reader *reader)
{
    struct vpmm_trace_facts facts = reader->facts;
    if (reader->input.text)
        facts.bytes_read = vpmm_trace_input_at(&reader->input);
    return facts;
}
