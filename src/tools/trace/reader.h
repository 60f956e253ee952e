/* SPDX-License-Identifier: MIT */
/* Any file that tells what a program allocated, as one sequence of entries in the order of time:
 * this library's own traces, CSV, RMM's logs (docs/FORMS.md). Memory is bounded by the number of
 * threads in the file and of blocks live at one time, not by its length. A reader is used by one
 * thread. */
#ifndef VPMM_TRACE_READER_H
#define VPMM_TRACE_READER_H

#include "base/status.h"
#include "recorder/format.h"

#include <stdbool.h>
#include <stdint.h>

enum vpmm_trace_form {
    VPMM_TRACE_FORM_UNKNOWN,
    VPMM_TRACE_FORM_VPMM,     /* format.h */
    VPMM_TRACE_FORM_CSV,      /* A,F,K,E,W lines; .gz too */
    VPMM_TRACE_FORM_RMM,      /* RMM's logging_resource_adaptor */
    VPMM_TRACE_FORM_SNAPSHOT, /* PyTorch's memory snapshot; written only: the command imports one */
    VPMM_TRACE_FORM_CHROME,   /* trace events for Perfetto; written only */
};

/* What lines of other forms tell besides: queued work and its order. */
enum vpmm_trace_kind_read {
    VPMM_TRACE_KERNEL = VPMM_TRACE_KINDS, /* queued on `stream`; runs for `bytes` ns, and as long as
                                             `duration_ns` unless that is UINT32_MAX */
    VPMM_TRACE_RECORD,                    /* event `address` is recorded on `stream` */
    VPMM_TRACE_FOLLOW,                    /* `stream` waits for event `address` */
};

struct vpmm_trace_item {
    struct vpmm_trace_entry entry; /* of a free with its bytes and device, where they are
                                      known */
    uint64_t thread;               /* 0: not known */
    uint64_t moment_ns; /* by which items are ordered; never less than the one before: a malloc
                           counts when it ended, all else when it began */
    bool is_known;   /* a malloc: it succeeded, and its address is live from here on; a free: of a
                        block that was. No address becomes live twice without a free between */
    bool is_made_up; /* a free that is missing in the file: the address was served again */
};

struct vpmm_trace_reader;

/* Opens `path` ("-": standard input), and finds out its form unless `form` says it. What cannot be
 * read twice, as a pipe, is copied to a temporary file first. On failure `message_out` names the
 * file and what is wrong, in one line without its end. INVALID: not a file of a form that is read;
 * NOT_SUPPORTED: a PyTorch snapshot; NOT_FOUND: it cannot be opened or read; NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_open(const char *path, enum vpmm_trace_form form,
                                                 struct vpmm_trace_reader **reader_out,
                                                 char message_out[static 256]);
/* The same with a file that is open, from its beginning. The descriptor stays the caller's, who may
 * close it at once; `name` is for messages. */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_open_fd(int fd, const char *name,
                                                    enum vpmm_trace_form form,
                                                    struct vpmm_trace_reader **reader_out,
                                                    char message_out[static 256]);
/* An empty temporary file that is gone when it is closed, in TMPDIR. -1 with errno. */
int vpmm_trace_input_nameless(void);
/* A regular file with what `fd` gives: `fd` once more where it is one, else a copy of all that
 * comes. Of what cannot be a trace of `form` (UNKNOWN: of any form) by its first bytes the copy has
 * no more than a beginning, by which readers refuse it: it may have no end. -1 with errno. */
int vpmm_trace_settle(int fd, enum vpmm_trace_form form);
/* The regular file `fd` once more or, where gzip compressed it, what it was. -1 with errno. */
int vpmm_trace_plain(int fd);
/* NULL is accepted. */
void vpmm_trace_close(struct vpmm_trace_reader *reader);

/* The next item in the order of time. False at the end, and after damage: then vpmm_trace_damage
 * names it. */
bool vpmm_trace_next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out);
/* From the first item again: the same items, also of a file that has grown since. False where the
 * file can no longer be read; vpmm_trace_damage says why. */
VPMM_MUST_CHECK bool vpmm_trace_rewind(struct vpmm_trace_reader *reader);
/* At the end: NULL, or what ended the reading before the end of the file, in one line with the name
 * of the file and the place. A trace whose process was killed is not damaged. */
const char *vpmm_trace_damage(const struct vpmm_trace_reader *reader);

/* A free of NULL, which programs begin with to have a context. */
static inline bool vpmm_trace_frees_nothing(const struct vpmm_trace_item *item)
{
    return item->entry.kind == VPMM_TRACE_FREE && item->entry.address == 0;
}

struct vpmm_trace_facts {
    enum vpmm_trace_form form;
    const char *program; /* "" where it is not known */
    uint64_t pid, start_unix_ns, dropped;
    bool is_ended;
    uint64_t bytes, bytes_read; /* of the file, for a progress bar; 0: not known */
};
/* Valid as long as the reader. */
struct vpmm_trace_facts vpmm_trace_reader_facts(const struct vpmm_trace_reader *reader);

#endif
