/* SPDX-License-Identifier: MIT */
/* Decides who serves a request, and says why. Must not look at anything but the question that it is
 * asked. */
#include "route/route.h"

#define VPMM_ROUTE_TEXT(name, text) [VPMM_ROUTE_##name] = (text),
static const char *const texts[VPMM_ROUTE_COUNT] = {VPMM_ROUTE_LIST(VPMM_ROUTE_TEXT)};

const char *vpmm_route_text(enum vpmm_route route)
{
    return (unsigned)route < VPMM_ROUTE_COUNT ? texts[route] : "unknown answer";
}

enum vpmm_route vpmm_route_decide(const struct vpmm_route_question *question)
{
    if (question->is_disabled)
        return VPMM_ROUTE_DISABLED;
    if (question->bytes == 0 || question->bytes < question->threshold_bytes)
        return VPMM_ROUTE_SMALL;
    if (!question->has_context)
        return VPMM_ROUTE_NO_CONTEXT;
    if (question->is_capturing)
        return VPMM_ROUTE_CAPTURING;
    if (!question->has_vmm)
        return VPMM_ROUTE_NO_VMM;
    if (question->bytes > question->device_bytes)
        return VPMM_ROUTE_LARGE;
    if (question->is_async && question->names_explicit_pool)
        return VPMM_ROUTE_EXPLICIT_POOL;
    if (question->is_async && !question->names_our_pool)
        return VPMM_ROUTE_OTHER_POOL;
    if (!question->is_async && !question->peers_possible)
        return VPMM_ROUTE_NO_PEER;
    if (!question->is_async && !question->emulates_ipc)
        return VPMM_ROUTE_NO_IPC;
    if (question->bytes > question->limit_bytes)
        return VPMM_ROUTE_LIMITED;
    return VPMM_ROUTE_POOL;
}
