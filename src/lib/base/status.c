/* SPDX-License-Identifier: MIT */
/* The text of each status code. Must not allocate: signal handlers ask, too. */
#include "base/status.h"

#define VPMM_STATUS_TEXT(name, text) [VPMM_##name] = (text),
static const char *const texts[VPMM_STATUS_COUNT] = {VPMM_STATUS_LIST(VPMM_STATUS_TEXT)};

const char *vpmm_status_text(enum vpmm_status status)
{
    return (unsigned)status < VPMM_STATUS_COUNT ? texts[status] : "unknown status";
}
