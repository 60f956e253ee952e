/* SPDX-License-Identifier: MIT */
/* Arithmetic on byte counts, and byte counts as people write them. Must not wrap around, and must
 * not ask the program's locale. */
#include "base/bytes.h"

#include "base/text.h"

/* One letter for each power of 1024 from the first. */
static const char units[] = "KMGTP";
#define UNITS (sizeof units - 1)

bool vpmm_bytes_add(uint64_t a, uint64_t b, uint64_t *sum_out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *sum_out = sum;
    return true;
}

bool vpmm_bytes_multiply(uint64_t a, uint64_t b, uint64_t *product_out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *product_out = product;
    return true;
}

bool vpmm_bytes_round_up(uint64_t bytes, uint64_t unit, uint64_t *rounded_out)
{
    uint64_t rest = bytes % unit;
    return vpmm_bytes_add(bytes, rest ? unit - rest : 0, rounded_out);
}

/* Not toupper: the program's locale has no say here. */
static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Skips an optional unit; the power of 1024 it stands for. */
static unsigned parse_unit(const char **text)
{
    const char *at = *text;
    unsigned power = 0;
    for (unsigned i = 0; i < UNITS; i++)
        if (upper(*at) == units[i])
            power = i + 1;
    at += power != 0;
    if (power && upper(at[0]) == 'I' && upper(at[1]) == 'B')
        at += 2;
    else if (upper(*at) == 'B')
        at++;
    *text = at;
    return power;
}

enum vpmm_status vpmm_bytes_parse(const char *text, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!vpmm_bytes_multiply(bytes, 10, &bytes) ||
            !vpmm_bytes_add(bytes, (uint64_t)(*at - '0'), &bytes))
            return VPMM_INVALID;
    if (at == text)
        return VPMM_INVALID;
    unsigned power = parse_unit(&at);
    if (*at || !vpmm_bytes_multiply(bytes, (uint64_t)1 << (10 * power), &bytes))
        return VPMM_INVALID;
    *bytes_out = bytes;
    return VPMM_OK;
}

size_t vpmm_bytes_print(uint64_t bytes, char *text, size_t room)
{
    unsigned power = 0;
    while (power < UNITS && bytes >> (10 * (power + 1)))
        power++;
    uint64_t unit = (uint64_t)1 << (10 * power);
    uint64_t whole = bytes / unit, hundredths = (bytes % unit * 100 + unit / 2) / unit;
    whole += hundredths / 100;
    /* 1,024 of a unit are one of the next. */
    if (whole >> 10 && power < UNITS) {
        whole >>= 10;
        power++;
    }
    struct vpmm_text out;
    vpmm_text_init(&out, text, room, -1);
    vpmm_text_decimal(&out, whole, 0);
    if (bytes % unit) {
        vpmm_text_string(&out, hundredths % 100 < 10 ? ".0" : ".");
        vpmm_text_decimal(&out, hundredths % 100, 0);
    }
    vpmm_text_char(&out, ' ');
    if (power) {
        vpmm_text_char(&out, units[power - 1]);
        vpmm_text_char(&out, 'i');
    }
    vpmm_text_char(&out, 'B');
    return out.length;
}
