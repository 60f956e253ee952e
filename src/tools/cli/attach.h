/* SPDX-License-Identifier: MIT */
/* The metadata of another process, as that process has it and at the same addresses. The other one
 * notices nothing: it may run, wait, or be stopped. */
#ifndef VPMM_CLI_ATTACH_H
#define VPMM_CLI_ATTACH_H

#include "base/arena.h"
#include "report/report.h"

#define VPMM_ATTACH_WHY 256

struct vpmm_attached {
    struct vpmm_report_process process; /* by the number that it has here; its program as below */
    struct vpmm_arena_header header;    /* a copy */
    struct vpmm_router *router;         /* NULL: it has none yet */
};

enum vpmm_attach_answer {
    VPMM_ATTACHED,
    VPMM_ATTACH_TAKEN,   /* something of this process lies at the addresses */
    VPMM_ATTACH_REFUSED, /* it cannot be had */
};

/* Whether the process shows its metadata to this one: its metadata are looked for, and not looked
 * at. */
bool vpmm_attach_is_possible(uint64_t pid);

/* Maps the metadata of process `pid` for as long as the calling process lives; once. Unless that
 * went well, `why_out` is a clear line about it. */
enum vpmm_attach_answer vpmm_attach(uint64_t pid, struct vpmm_attached *attached_out,
                                    char why_out[VPMM_ATTACH_WHY]);

#endif
