/* SPDX-License-Identifier: MIT */
/* Puts text together piece by piece in the caller's buffer. Runs in signal handlers, so it must not
 * lock, allocate or use stdio. */
#include "base/text.h"

#include "base/bytes.h"
#include "base/write.h"

#include <string.h>

void vpmm_text_init(struct vpmm_text *text, char *buffer, size_t room, int fd)
{
    *text = (struct vpmm_text){
        .buffer = buffer, .room = room, .fd = fd, .patience_ms = VPMM_TEXT_PATIENCE_MS};
    buffer[0] = 0;
}

void vpmm_text_char(struct vpmm_text *text, char c)
{
    if (text->length + 1 == text->room && text->fd != VPMM_TEXT_CUT)
        vpmm_text_flush(text);
    if (text->length + 1 >= text->room)
        return;
    text->buffer[text->length++] = c;
    text->buffer[text->length] = 0;
}

void vpmm_text_string(struct vpmm_text *text, const char *string)
{
    while (*string)
        vpmm_text_char(text, *string++);
}

static void repeat(struct vpmm_text *text, char c, size_t n)
{
    while (n-- > 0)
        vpmm_text_char(text, c);
}

/* The digits of `number` end at `end`; returns where they begin. */
static const char *digits_before(char *end, uint64_t number, unsigned base)
{
    do
        *--end = "0123456789abcdef"[number % base];
    while (number /= base);
    return end;
}

void vpmm_text_decimal(struct vpmm_text *text, uint64_t number, unsigned width)
{
    char digits[21] = {0};
    const char *first = digits_before(digits + sizeof digits - 1, number, 10);
    size_t n = strlen(first);
    repeat(text, ' ', n < width ? width - n : 0);
    vpmm_text_string(text, first);
}

void vpmm_text_padded(struct vpmm_text *text, const char *string, unsigned width)
{
    size_t n = strlen(string);
    vpmm_text_string(text, string);
    repeat(text, ' ', n < width ? width - n : 0);
}

void vpmm_text_hex(struct vpmm_text *text, uint64_t number, unsigned n_digits)
{
    char digits[17] = {0};
    const char *first = digits_before(digits + sizeof digits - 1, number, 16);
    size_t n = strlen(first);
    vpmm_text_string(text, "0x");
    repeat(text, '0', n < n_digits ? n_digits - n : 0);
    vpmm_text_string(text, first);
}

void vpmm_text_bytes(struct vpmm_text *text, uint64_t bytes)
{
    char printed[24];
    (void)vpmm_bytes_print(bytes, printed, sizeof printed);
    vpmm_text_string(text, printed);
}

void vpmm_text_quoted(struct vpmm_text *text, const char *string)
{
    vpmm_text_char(text, '"');
    for (; *string; string++) {
        unsigned char c = (unsigned char)*string;
        if (c < 0x20 || c >= 0x7f) {
            vpmm_text_string(text, "\\u00");
            vpmm_text_char(text, "0123456789abcdef"[c >> 4]);
            vpmm_text_char(text, "0123456789abcdef"[c & 15]);
            continue;
        }
        if (c == '"' || c == '\\')
            vpmm_text_char(text, '\\');
        vpmm_text_char(text, *string);
    }
    vpmm_text_char(text, '"');
}

void vpmm_text_flush(struct vpmm_text *text)
{
    bool is_dropped = text->fd == VPMM_TEXT_COUNTED || text->has_failed || text->length == 0;
    if (!is_dropped && !vpmm_write(text->fd, text->buffer, text->length, text->patience_ms))
        text->has_failed = true;
    text->n_bytes += text->length;
    text->length = 0;
    text->buffer[0] = 0;
}
