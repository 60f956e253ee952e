/* SPDX-License-Identifier: MIT */
/* The words for calls and for who served them. Must not fail at a number that it does not know. */
#include "cli/summary.h"

#define REASON(number, name, text) [number] = (text),
static const char *const reasons[] = {VPMM_TRACE_REASONS(REASON)};
static const char *const paths[] = {
    [VPMM_TRACE_BY_NOBODY] = "not known", [VPMM_TRACE_BY_CACHE] = "cache",
    [VPMM_TRACE_BY_HABIT] = "habit",      [VPMM_TRACE_BY_FIT] = "fit",
    [VPMM_TRACE_BY_REVIVE] = "revive",    [VPMM_TRACE_BY_STITCH] = "stitch",
    [VPMM_TRACE_BY_GROW] = "grow",        [VPMM_TRACE_BY_POOL] = "pool",
};
#define PATHS (sizeof paths / sizeof paths[0])
#define REASONS (sizeof reasons / sizeof reasons[0])

const char *vpmm_summary_path_text(unsigned path, char room[static 64])
{
    unsigned reason = path - VPMM_TRACE_BY_CUDA;
    if (path < PATHS)
        return paths[path];
    if (path == VPMM_TRACE_BY_CUDA)
        return "CUDA";
    if (path > VPMM_TRACE_BY_CUDA && reason < REASONS && reasons[reason])
        snprintf(room, 64, "CUDA: %s", reasons[reason]);
    else
        snprintf(room, 64, "path %u", path);
    return room;
}

const char *vpmm_summary_call_text(const struct vpmm_trace_entry *entry)
{
    bool is_async = entry->flags & VPMM_TRACE_IS_ASYNC;
    if (entry->kind == VPMM_TRACE_MALLOC)
        return is_async ? "cudaMallocAsync" : "cudaMalloc";
    return is_async ? "cudaFreeAsync" : "cudaFree";
}
