/* SPDX-License-Identifier: MIT */
/* Tells the form of a trace by its first bytes. Must not look beyond the bytes that it is given. */
#include "trace/form.h"

#include <string.h>

static bool looks_like_rmm(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return strncmp(text, "Thread,Time,", 12) == 0 ||
           (digits > 0 && text[digits] == ',' && strspn(text + digits + 1, "0123456789:.") >= 8);
}

static bool looks_like_csv(const char *text)
{
    return *text == '#' || *text == '\n' || *text == '\r' ||
           (*text && strchr("AFKEW", *text) && text[1] == ',');
}

enum vpmm_trace_form vpmm_trace_form_found(const char *head, size_t n)
{
    if (n >= 8 && memcmp(head, VPMM_TRACE_MAGIC, 8) == 0)
        return VPMM_TRACE_FORM_VPMM;
    if (n >= 2 && (unsigned char)head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        return VPMM_TRACE_FORM_SNAPSHOT;
    if (looks_like_rmm(head))
        return VPMM_TRACE_FORM_RMM;
    return looks_like_csv(head) ? VPMM_TRACE_FORM_CSV : VPMM_TRACE_FORM_UNKNOWN;
}

static bool has_known_version(const char *head, size_t n)
{
    uint32_t version = 0;
    size_t at = offsetof(struct vpmm_trace_header, version);
    if (n >= at + sizeof version)
        memcpy(&version, head + at, sizeof version);
    return version >= VPMM_TRACE_VERSION_LEAST && version <= VPMM_TRACE_VERSION;
}

bool vpmm_trace_form_may_be(enum vpmm_trace_form form, const char *head, size_t n)
{
    enum vpmm_trace_form found = vpmm_trace_form_found(head, n);
    if (found == VPMM_TRACE_FORM_VPMM && !has_known_version(head, n))
        return false;
    switch (form) {
    case VPMM_TRACE_FORM_UNKNOWN:
        return found != VPMM_TRACE_FORM_UNKNOWN;
    case VPMM_TRACE_FORM_RMM:
        return found == VPMM_TRACE_FORM_RMM || *head == '\n' || *head == '\r' ||
               strncmp(head, "Thread,", 7) == 0;
    case VPMM_TRACE_FORM_SNAPSHOT:
        /* Those of the earliest protocols begin with what they hold: a list or a dictionary. */
        return found == VPMM_TRACE_FORM_SNAPSHOT || (*head && strchr("(]}", *head));
    case VPMM_TRACE_FORM_VPMM:
    case VPMM_TRACE_FORM_CSV:
    case VPMM_TRACE_FORM_CHROME:
    default:
        return found == form;
    }
}
