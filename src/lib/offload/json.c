/* SPDX-License-Identifier: MIT */
/* Reads JSON a token at a time. Must not recurse: what it reads may be hostile. */
#include "offload/json.h"

void json_fail(struct json *json, const char *fault)
{
    if (!json->fault)
        json->fault = fault;
}

static void pass_spaces(struct json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

bool json_take(struct json *json, char c)
{
    if (json->fault)
        return false;
    pass_spaces(json);
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

void json_expect(struct json *json, char c, const char *fault)
{
    if (!json_take(json, c))
        json_fail(json, fault);
}

bool json_more(struct json *json, char close, const char *fault)
{
    if (json_take(json, ','))
        return true;
    json_expect(json, close, fault);
    return false;
}

uint64_t json_number(struct json *json)
{
    uint64_t number = 0;
    pass_spaces(json);
    const char *first = json->at;
    if (json->fault)
        return 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        uint64_t digit = (uint64_t)(*json->at - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            json_fail(json, "a number is too large");
            return 0;
        }
        number = number * 10 + digit;
    }
    if (json->at == first || (*first == '0' && json->at - first > 1))
        json_fail(json, "a whole number without sign should stand here");
    return number;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t four_digits(struct json *json)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = json->at < json->end ? hex_digit(*json->at) : -1;
        if (digit < 0) {
            json_fail(json, "an escape is not complete");
            return 0;
        }
        code = code << 4 | (uint32_t)digit;
        json->at++;
    }
    return code;
}

/* The two halves of a character beyond 16 bits (RFC 8259, section 7). */
static uint32_t escaped_code(struct json *json)
{
    uint32_t code = four_digits(json);
    if (code >= 0xdc00 && code <= 0xdfff)
        json_fail(json, "an escape is half a character");
    if (code < 0xd800 || code > 0xdbff || json->fault)
        return code;
    if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u') {
        json_fail(json, "an escape is half a character");
        return 0;
    }
    json->at += 2;
    uint32_t low = four_digits(json);
    if (low < 0xdc00 || low > 0xdfff)
        json_fail(json, "an escape is half a character");
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

static size_t utf8(uint32_t code, char *bytes)
{
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    bytes[0] = (char)(0xf0 | code >> 18);
    bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
    bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
    bytes[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* What stands after a backslash, as bytes; how many. */
static size_t escape(struct json *json, char *bytes)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    char c = json->at < json->end ? *json->at++ : 0;
    if (c == 'u')
        return utf8(escaped_code(json), bytes);
    for (size_t i = 0; from[i]; i++) {
        if (c == from[i]) {
            bytes[0] = to[i];
            return 1;
        }
    }
    json_fail(json, "an escape is unknown");
    return 0;
}

/* Of the character that begins the text; 0: it is none (RFC 3629, section 4). */
static size_t utf8_bytes(const char *text, size_t n_left)
{
    unsigned char first = (unsigned char)text[0], second = n_left > 1 ? (unsigned char)text[1] : 0;
    size_t n = first < 0x80   ? 1
               : first < 0xc2 ? 0
               : first < 0xe0 ? 2
               : first < 0xf0 ? 3
               : first < 0xf5 ? 4
                              : 0;
    if (n > n_left || (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static bool is_utf8(const char *text, size_t length)
{
    size_t at = 0, n = 1;
    for (; n && at < length; at += n)
        n = utf8_bytes(text + at, length - at);
    return n > 0;
}

size_t json_string(struct json *json, char *text, size_t room)
{
    size_t length = 0;
    text[0] = 0;
    json_expect(json, '"', "a string should stand here");
    while (!json->fault) {
        char bytes[4];
        size_t n = 1;
        if (json->at == json->end) {
            json_fail(json, "a string does not end");
            break;
        }
        bytes[0] = *json->at++;
        if (bytes[0] == '"')
            break;
        if ((unsigned char)bytes[0] < ' ')
            json_fail(json, "a string holds a control character");
        if (bytes[0] == '\\')
            n = escape(json, bytes);
        if (length + n >= room)
            json_fail(json, "a string is too long");
        for (size_t i = 0; !json->fault && i < n; i++)
            text[length++] = bytes[i];
    }
    text[length] = 0;
    if (!is_utf8(text, length))
        json_fail(json, "a string is not UTF-8");
    return length;
}
