/* SPDX-License-Identifier: MIT */
/* The part of JSON that the header of a safetensors file is made of: objects, strings, lists of
 * whole numbers. It reads between two pointers and must not look past the second. The first failure
 * stays: from then on nothing is read. Private to this folder. */
#ifndef VPMM_OFFLOAD_JSON_H
#define VPMM_OFFLOAD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    const char *begin, *at, *end;
    const char *fault; /* what is wrong there; static; NULL: nothing so far */
};

void json_fail(struct json *json, const char *fault);
/* The next character that is no space, if it is `c`: then it is passed. */
bool json_take(struct json *json, char c);
/* The same, and a failure otherwise. */
void json_expect(struct json *json, char c, const char *fault);
/* A string, with its escapes resolved to UTF-8, into `text`, terminated. Fails where it does not
 * fit, is no string or is not UTF-8. Its length; a zero that was written as an escape counts. */
size_t json_string(struct json *json, char *text, size_t room);
/* A whole number without sign that fits. */
uint64_t json_number(struct json *json);
/* After an element of a list or object: whether another follows (','), or it has ended (`close`).
 */
bool json_more(struct json *json, char close, const char *fault);

#endif
