/* SPDX-License-Identifier: MIT */
/* Writes the items of a trace as a file of another form (docs/FORMS.md). The file is put in place
 * when it is finished; until then, and after a failure, what was there before is there. Memory is
 * bounded by the blocks live at one time, the threads and the devices. One thread at a time. */
#ifndef VPMM_TRACE_WRITER_H
#define VPMM_TRACE_WRITER_H

#include "base/status.h"
#include "trace/reader.h"

#include <stdbool.h>
#include <stdint.h>

#define VPMM_TRACE_PATH_ROOM 4096

struct vpmm_trace_writer;

/* What a form has no place for, in items. */
struct vpmm_trace_left_out {
    uint64_t queued;  /* kernels, events and waits */
    uint64_t failed;  /* calls that the program got an error for */
    uint64_t pool;    /* what the pool did, and its figures */
    uint64_t unknown; /* frees of blocks that were live before the trace began */
};

/* The form that the end of a file's name stands for: .vpmm .trace, .csv, .log .rmm, .pickle .pkl,
 * .json; each but the first may have .gz behind. */
enum vpmm_trace_form vpmm_trace_form_of_name(const char *path);
/* "vpmm", "csv", "rmm", "snapshot", "chrome"; UNKNOWN for any other. */
enum vpmm_trace_form vpmm_trace_form_named(const char *name);
/* The other way; "" for UNKNOWN. */
const char *vpmm_trace_form_name(enum vpmm_trace_form form);

/* Begins `path` ("-": standard output). A name that ends in .gz is compressed. `facts` are those of
 * what is read; they are copied. On failure `message_out` is one line without its end. NOT_FOUND:
 * the file cannot be made; NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_create(const char *path, enum vpmm_trace_form form,
                                                   const struct vpmm_trace_facts *facts,
                                                   struct vpmm_trace_writer **writer_out,
                                                   char message_out[static 256]);
/* The name under which the file lies until it is complete; "": none. As long as the writer. */
const char *vpmm_trace_unfinished(const struct vpmm_trace_writer *writer);
/* The next item, as a reader gives them. False after a failure that vpmm_trace_finish tells. */
bool vpmm_trace_put(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item);
/* So far. */
struct vpmm_trace_left_out vpmm_trace_left_out(const struct vpmm_trace_writer *writer);
/* Completes the file and frees the writer. FAILED, with a message as above: nothing is left of it.
 */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_finish(struct vpmm_trace_writer *writer,
                                                   char message_out[static 256]);
/* Frees the writer and removes what it wrote. NULL is accepted. */
void vpmm_trace_abandon(struct vpmm_trace_writer *writer);

#endif
