/* SPDX-License-Identifier: MIT */
/* Writes the items of a trace as a file of another form. Must not replace a file before the new one
 * is complete. */
#include "trace/input.h"
#include "trace/writer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_ROOM 256

static const struct form {
    const char *name;
    const struct vpmm_trace_sink *sink;
    const char *ends[2];
} forms[] = {
    [VPMM_TRACE_FORM_UNKNOWN] = {"", NULL, {NULL, NULL}},
    [VPMM_TRACE_FORM_VPMM] = {"vpmm", &vpmm_trace_sink_native, {".vpmm", ".trace"}},
    [VPMM_TRACE_FORM_CSV] = {"csv", &vpmm_trace_sink_csv, {".csv", NULL}},
    [VPMM_TRACE_FORM_RMM] = {"rmm", &vpmm_trace_sink_rmm, {".log", ".rmm"}},
    [VPMM_TRACE_FORM_SNAPSHOT] = {"snapshot", &vpmm_trace_sink_snapshot, {".pickle", ".pkl"}},
    [VPMM_TRACE_FORM_CHROME] = {"chrome", &vpmm_trace_sink_chrome, {".json", NULL}},
};
#define FORMS (sizeof forms / sizeof forms[0])

static bool ends_at(const char *path, size_t length, const char *end)
{
    size_t end_length = end ? strlen(end) : SIZE_MAX;
    return end_length < length && strncmp(path + length - end_length, end, end_length) == 0;
}

enum vpmm_trace_form vpmm_trace_form_of_name(const char *path)
{
    size_t length = strlen(path);
    if (ends_at(path, length, ".gz"))
        length -= strlen(".gz");
    for (unsigned i = 1; i < FORMS; i++) {
        if (ends_at(path, length, forms[i].ends[0]) || ends_at(path, length, forms[i].ends[1]))
            return (enum vpmm_trace_form)i;
    }
    return VPMM_TRACE_FORM_UNKNOWN;
}

enum vpmm_trace_form vpmm_trace_form_named(const char *name)
{
    for (unsigned i = 1; i < FORMS; i++) {
        if (strcmp(forms[i].name, name) == 0)
            return (enum vpmm_trace_form)i;
    }
    return VPMM_TRACE_FORM_UNKNOWN;
}

const char *vpmm_trace_form_name(enum vpmm_trace_form form)
{
    return forms[form].name;
}

static enum vpmm_status say(char *message_out, enum vpmm_status status, const char *name, int error)
{
    char room[VPMM_TRACE_ERROR_ROOM];
    (void)snprintf(message_out, MESSAGE_ROOM, "%.150s: %.90s", name,
                   vpmm_trace_error_text(error, room));
    for (char *at = message_out; *at; at++) {
        if ((unsigned char)*at < ' ')
            *at = '?';
    }
    return status;
}

enum vpmm_status vpmm_trace_create(const char *path, enum vpmm_trace_form form,
                                   const struct vpmm_trace_facts *facts,
                                   struct vpmm_trace_writer **writer_out,
                                   char message_out[static MESSAGE_ROOM])
{
    struct vpmm_trace_writer *writer = calloc(1, sizeof *writer);
    const char *name = strcmp(path, "-") == 0 ? "standard output" : path;
    if (!writer)
        return say(message_out, VPMM_NO_METADATA, name, ENOMEM);
    (void)snprintf(writer->name, sizeof writer->name, "%s", name);
    (void)snprintf(writer->program, sizeof writer->program, "%s", facts->program);
    writer->facts = *facts;
    writer->facts.program = writer->program;
    if (!vpmm_trace_output_open(&writer->output, path)) {
        int error = errno;
        free(writer);
        return say(message_out, VPMM_NOT_FOUND, name, error);
    }
    writer->sink = forms[form].sink;
    writer->sink->begin(writer);
    if (writer->output.error) {
        say(message_out, VPMM_NO_METADATA, name, writer->output.error);
        vpmm_trace_abandon(writer);
        return VPMM_NO_METADATA;
    }
    *writer_out = writer;
    return VPMM_OK;
}

/* Where items of its kind are counted that the form does not take; NULL where it takes this one. */
static uint64_t *counter_of(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_sink *sink = writer->sink;
    struct vpmm_trace_left_out *left_out = &writer->left_out;
    if (item->entry.kind >= VPMM_TRACE_KINDS)
        return sink->takes_queued ? NULL : &left_out->queued;
    if (!vpmm_trace_is_request(item))
        return sink->takes_pool ? NULL : &left_out->pool;
    if (item->is_known)
        return NULL;
    if (item->entry.kind == VPMM_TRACE_MALLOC)
        return sink->takes_failed ? NULL : &left_out->failed;
    if (sink->takes_unknown)
        return NULL;
    return item->entry.flags & VPMM_TRACE_IS_FAILED ? &left_out->failed : &left_out->unknown;
}

bool vpmm_trace_put(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    uint64_t *counter = counter_of(writer, item);
    if (counter && vpmm_trace_frees_nothing(item))
        return !writer->output.error;
    if (counter)
        ++*counter;
    else if (!writer->output.error)
        writer->sink->put(writer, item);
    return !writer->output.error;
}

const char *vpmm_trace_unfinished(const struct vpmm_trace_writer *writer)
{
    return writer->output.temporary;
}

struct vpmm_trace_left_out vpmm_trace_left_out(const struct vpmm_trace_writer *writer)
{
    return writer->left_out;
}

void vpmm_trace_abandon(struct vpmm_trace_writer *writer)
{
    if (!writer)
        return;
    vpmm_trace_output_abandon(&writer->output);
    if (writer->sink->finish)
        writer->sink->finish(writer);
    free(writer);
}

enum vpmm_status vpmm_trace_finish(struct vpmm_trace_writer *writer,
                                   char message_out[static MESSAGE_ROOM])
{
    enum vpmm_status status = VPMM_OK;
    if (!writer->output.error)
        writer->sink->end(writer);
    if (!vpmm_trace_output_close(&writer->output))
        status = say(message_out, VPMM_FAILED, writer->name, errno);
    vpmm_trace_abandon(writer);
    return status;
}
