/* SPDX-License-Identifier: MIT */
/* What the forms that are lines share: fields, numbers, and damage. Must not take a number that it
 * has not read to the end. */
#include "trace/trace_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool vpmm_trace_line_damaged(struct vpmm_trace_reader *reader, const char *complaint)
{
    return vpmm_trace_damaged(reader, "line %llu: %s",
                              (unsigned long long)reader->input.line_number, complaint);
}

unsigned vpmm_trace_fields(struct vpmm_trace_reader *reader, char **fields_out, unsigned room)
{
    unsigned n = 0;
    char *at = reader->input.line;
    while (n < room) {
        fields_out[n++] = at;
        at = strchr(at, ',');
        if (!at)
            return n;
        *at++ = '\0';
    }
    return room + 1;
}

bool vpmm_trace_number(const char *text, int base, uint64_t *number_out)
{
    char *end;
    if (base == 16 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        text += 2;
    if (base == 16 ? !isxdigit((unsigned char)*text) : !isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, base);
    if (*end || errno)
        return false;
    *number_out = number;
    return true;
}
