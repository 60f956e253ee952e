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

/* How many bytes the first character of UTF-8 has (RFC 3629, section 4); 0: there is none. */
static size_t decode(const unsigned char *at, uint32_t *code_out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = n < 2 ? at[0] : at[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    bool is_half = code >= 0xd800 && code <= 0xdfff;
    if (n == 0 || at[0] >= 0xf8 || code > 0x10ffff || code < least[n] || is_half)
        return 0;
    *code_out = code;
    return n;
}

static char *put_unit(char *out, uint32_t unit)
{
    *out++ = '\\';
    *out++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *out++ = "0123456789abcdef"[unit >> shift & 15];
    return out;
}

static char *put_character(char *out, uint32_t code)
{
    if (code >= 0x10000) {
        out = put_unit(out, 0xd800 + ((code - 0x10000) >> 10));
        return put_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    if (code < 0x20 || code >= 0x7f)
        return put_unit(out, code);
    if (code == '"' || code == '\\')
        *out++ = '\\';
    *out++ = (char)code;
    return out;
}

size_t vpmm_text_escape(const char *string, char escaped_out[static VPMM_TEXT_ESCAPED_ROOM])
{
    const unsigned char *at = (const unsigned char *)string;
    uint32_t code = at[0];
    size_t n = decode(at, &code);
    *put_character(escaped_out, code) = 0;
    return n ? n : 1;
}

void vpmm_text_quoted(struct vpmm_text *text, const char *string)
{
    char escaped[VPMM_TEXT_ESCAPED_ROOM];
    vpmm_text_char(text, '"');
    while (*string) {
        string += vpmm_text_escape(string, escaped);
        vpmm_text_string(text, escaped);
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
