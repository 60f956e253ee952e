/* SPDX-License-Identifier: MIT */
/* Text put together piece by piece in a buffer of the caller's, without stdio, locale or
 * allocation: safe in a signal handler. With a file descriptor a full buffer is written out
 * (base/write.h) and filled again; without one what does not fit is cut off, and the text is
 * terminated at any time. One thread at a time uses one text. */
#ifndef VPMM_BASE_TEXT_H
#define VPMM_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Descriptors that stand for none: what does not fit is cut off; it is counted and written nowhere.
 */
#define VPMM_TEXT_CUT (-1)
#define VPMM_TEXT_COUNTED (-2)

/* How long a reader that does not read is waited for, unless the caller sets another time. */
#define VPMM_TEXT_PATIENCE_MS 3000u

struct vpmm_text {
    char *buffer;
    size_t room;   /* of the buffer, with the terminator */
    size_t length; /* of the text in the buffer */
    int fd;        /* where a full buffer goes, or one of the above */
    unsigned patience_ms;
    uint64_t n_bytes; /* that have left the buffer */
    bool has_failed;  /* something could not be written: from then on nothing is */
};

/* An empty text. `room` is at least 1. */
void vpmm_text_init(struct vpmm_text *text, char *buffer, size_t room, int fd);

void vpmm_text_char(struct vpmm_text *text, char c);
void vpmm_text_string(struct vpmm_text *text, const char *string);

/* Numbers and strings at the right or left end of a column of at least `width` characters. */
void vpmm_text_decimal(struct vpmm_text *text, uint64_t number, unsigned width);
void vpmm_text_padded(struct vpmm_text *text, const char *string, unsigned width);

/* "0x" and at least `digits` lower case digits. */
void vpmm_text_hex(struct vpmm_text *text, uint64_t number, unsigned digits);

/* `bytes` for people, as vpmm_bytes_print writes them. */
void vpmm_text_bytes(struct vpmm_text *text, uint64_t bytes);

/* A character as JSON has it, terminated: two escapes at most. */
#define VPMM_TEXT_ESCAPED_ROOM 13

/* Writes the first character of `string`, which is not empty, as it stands in a JSON string, in
 * ASCII. Returns how many bytes of `string` it is. A byte that begins no character of UTF-8 is
 * taken for one of Latin 1. */
size_t vpmm_text_escape(const char *string, char escaped_out[static VPMM_TEXT_ESCAPED_ROOM]);
/* All of it in double quotes. */
void vpmm_text_quoted(struct vpmm_text *text, const char *string);

/* Writes what the buffer holds and empties it. After an interruption or a short write it goes on;
 * whatever cannot be written is dropped. errno is what it was before. */
void vpmm_text_flush(struct vpmm_text *text);

#endif
