/* SPDX-License-Identifier: MIT */
/* Bytes become calls of src/lib/base, each beside a naive form of itself: numbers of 128 bits, a
 * buffer with room for everything, an array of booleans, an array that is searched from end to end.
 */
#define _POSIX_C_SOURCE 200809L
#include "input.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/text.h"
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

__extension__ typedef unsigned __int128 wide;

static struct input input;

/* ---- byte counts ---- */

/* Small, large, or near a power of two. */
static uint64_t some_number(void)
{
    uint64_t kind = input_byte(&input);
    switch (kind % 4) {
    case 0:
        return input_byte(&input);
    case 1:
        return ((uint64_t)1 << kind / 4) - 1 + input_below(&input, 3);
    case 2:
        return UINT64_MAX - input_byte(&input);
    default:
        return input_word(&input);
    }
}

/* Nothing is stored where the result does not fit. */
static void check_result(bool is_ok, const uint64_t *result, wide expected)
{
    assert_int_equal(is_ok, expected <= UINT64_MAX);
    assert_true(*result == (is_ok ? (uint64_t)expected : 77));
}

static void op_arithmetic(void)
{
    uint64_t a = some_number(), b = some_number();
    uint64_t sum = 77, product = 77, rounded = 77;
    check_result(vpmm_bytes_add(a, b, &sum), &sum, (wide)a + b);
    check_result(vpmm_bytes_multiply(a, b, &product), &product, (wide)a * b);
    if (b)
        check_result(vpmm_bytes_round_up(a, b, &rounded), &rounded, ((wide)a + b - 1) / b * b);
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

/* What `text` stands for; false when it is no byte count. */
static bool parse_naively(const char *text, uint64_t *bytes_out)
{
    static const char *const ends[] = {"",   "B",   "K", "KB", "KIB", "M", "MB", "MIB", "G",
                                       "GB", "GIB", "T", "TB", "TIB", "P", "PB", "PIB"};
    wide value = 0;
    char end[4] = {0};
    size_t n_digits = strspn(text, "0123456789");
    if (!n_digits || strlen(text + n_digits) >= sizeof end)
        return false;
    for (size_t i = 0; i < n_digits && value <= UINT64_MAX; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    for (size_t i = 0; text[n_digits + i]; i++)
        end[i] = (char)(text[n_digits + i] - (is_lower(text[n_digits + i]) ? 'a' - 'A' : 0));
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(end, ends[i]) == 0) {
            unsigned power = i < 2 ? 0 : (unsigned)(i - 2) / 3 + 1;
            value = value <= UINT64_MAX ? value << 10 * power : value;
            *bytes_out = (uint64_t)value;
            return value <= UINT64_MAX;
        }
    return false;
}

static void op_parse(void)
{
    char text[64];
    uint64_t parsed = 77, expected = 77;
    size_t length = input_below(&input, 28);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)input_byte(&input);
    text[length] = 0;
    bool is_number = parse_naively(text, &expected);
    enum vpmm_status status = vpmm_bytes_parse(text, &parsed);
    if ((status == VPMM_OK) != is_number)
        fail_msg("\"%s\"", text);
    assert_true(status == (is_number ? VPMM_OK : VPMM_INVALID));
    assert_true(parsed == (is_number ? expected : 77));
}

static void op_print(void)
{
    char text[32], all[24];
    uint64_t bytes = some_number(), again;
    size_t room = 1 + input_below(&input, 24);
    memset(text, 0x5a, sizeof text);
    size_t length = vpmm_bytes_print(bytes, text, room);
    assert_int_equal(length, strlen(text));
    assert_true(length < room && text[room] == 0x5a);
    assert_true(vpmm_bytes_print(bytes, all, sizeof all) + 1 < sizeof all);
    assert_memory_equal(text, all, length);
    assert_true(length + 1 == room || all[length] == 0);
    char *space = strchr(all, ' ');
    assert_non_null(space);
    if (!strchr(all, '.')) {
        memmove(space, space + 1, strlen(space));
        assert_int_equal(vpmm_bytes_parse(all, &again), VPMM_OK);
        assert_true(again == bytes);
    }
}

/* ---- text ---- */

struct naive_text {
    char all[8192];
    size_t length;
};

static void naive_add(struct naive_text *naive, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void naive_add(struct naive_text *naive, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    naive->length += (size_t)vsnprintf(naive->all + naive->length,
                                       sizeof naive->all - naive->length, format, arguments);
    va_end(arguments);
    assert_true(naive->length < sizeof naive->all);
}

/* Some bytes as a string: they end at a 0. */
static void some_string(char string[20])
{
    size_t length = input_below(&input, 19);
    for (size_t i = 0; i < length; i++)
        string[i] = (char)input_byte(&input);
    string[length] = 0;
}

static size_t encode(unsigned code, char *bytes)
{
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(marks[n] | code);
    return n;
}

/* The bytes of the string's first character in UTF-8, which are what it is encoded as; 1 and Latin
 * 1 where there is none. */
static size_t first_character(const char *string, unsigned *code)
{
    char again[4];
    for (size_t n = 2; n <= 4 && strlen(string) >= n; n++) {
        *code = (unsigned char)string[0] & (0xffu >> (n + 1));
        for (size_t i = 1; i < n; i++)
            *code = *code << 6 | ((unsigned char)string[i] & 0x3f);
        bool is_one = *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff);
        if (is_one && encode(*code, again) == n && memcmp(again, string, n) == 0)
            return n;
    }
    *code = (unsigned char)string[0];
    return 1;
}

static void naive_quoted(struct naive_text *naive, const char *string)
{
    unsigned c;
    naive_add(naive, "\"");
    while (*string) {
        string += first_character(string, &c);
        if (c > 0xffff)
            naive_add(naive, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
        else if (c < ' ' || c > '~')
            naive_add(naive, "\\u%04x", c);
        else
            naive_add(naive, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    naive_add(naive, "\"");
}

static void add_piece(struct vpmm_text *text, struct naive_text *naive)
{
    char string[20];
    uint64_t number, kind = input_byte(&input);
    unsigned width = (unsigned)(kind / 8 % 24);
    switch (kind % 6) {
    case 0:
        some_string(string);
        vpmm_text_string(text, string);
        naive_add(naive, "%s", string);
        break;
    case 1:
        some_string(string);
        vpmm_text_padded(text, string, width);
        naive_add(naive, "%-*s", (int)width, string);
        break;
    case 2:
        some_string(string);
        vpmm_text_quoted(text, string);
        naive_quoted(naive, string);
        break;
    case 3:
        number = some_number();
        vpmm_text_decimal(text, number, width);
        naive_add(naive, "%*llu", (int)width, (unsigned long long)number);
        break;
    case 4:
        number = some_number();
        vpmm_text_hex(text, number, width);
        naive_add(naive, "0x%0*llx", (int)(width ? width : 1), (unsigned long long)number);
        break;
    default:
        vpmm_text_char(text, 'x');
        naive_add(naive, "x");
    }
}

/* Without a file what does not fit is cut off; with one, here a pipe, everything arrives. */
static void op_text(void)
{
    static struct naive_text naive;
    static char arrived[sizeof naive.all];
    char buffer[80];
    int ends[2];
    struct vpmm_text cut, whole;
    uint64_t room = 1 + input_below(&input, sizeof buffer / 2);
    uint64_t n_pieces = input_below(&input, 16);
    assert_int_equal(pipe(ends), 0);
    memset(buffer, 0x5a, sizeof buffer);
    vpmm_text_init(&cut, buffer, room, -1);
    vpmm_text_init(&whole, buffer + room, sizeof buffer / 2, ends[1]);
    naive.length = 0;
    naive.all[0] = 0;
    for (uint64_t i = 0; i < n_pieces; i++) {
        const struct input before = input;
        size_t length = naive.length;
        add_piece(&cut, &naive);
        input = before;
        naive.length = length;
        add_piece(&whole, &naive);
    }
    size_t kept = naive.length < room ? naive.length : room - 1;
    assert_int_equal(cut.length, kept);
    assert_memory_equal(buffer, naive.all, kept);
    assert_int_equal(buffer[kept], 0);
    vpmm_text_flush(&whole);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(read(ends[0], arrived, sizeof arrived), naive.length);
    assert_memory_equal(arrived, naive.all, naive.length);
    assert_int_equal(close(ends[0]), 0);
}

/* ---- sets ---- */

#define NUMBERS_MAX 4400

static void op_bits(void)
{
    static bool naive[NUMBERS_MAX];
    struct vpmm_bits bits;
    uint64_t n = 1 + input_word(&input) % NUMBERS_MAX;
    uint64_t n_calls = input_byte(&input);
    memset(naive, 0, sizeof naive);
    assert_int_equal(vpmm_bits_init(&bits, n, &vpmm_memory_system), VPMM_OK);
    for (uint64_t i = 0; i < n_calls; i++) {
        uint64_t kind = input_byte(&input);
        uint64_t number = (kind << 8 | input_byte(&input)) * (kind & 8 ? 1 : 61) % n;
        uint64_t next = number, found = 77;
        bool has_last;
        if (kind % 2) {
            vpmm_bits_set(&bits, number);
            naive[number] = true;
        } else if (kind % 4) {
            vpmm_bits_clear(&bits, number);
            naive[number] = false;
        }
        assert_int_equal(vpmm_bits_has(&bits, number), naive[number]);
        while (next < n && !naive[next])
            next++;
        assert_int_equal(vpmm_bits_first_from(&bits, number), next);
        for (next = number; next > 0 && !naive[next]; next--)
            ;
        has_last = vpmm_bits_last_to(&bits, number, &found);
        assert_int_equal(has_last, naive[next]);
        assert_true(!has_last || found == next);
    }
    assert_int_equal(vpmm_bits_first_from(&bits, n), n);
    vpmm_bits_finish(&bits);
}

#define RECORDS_MAX 64

struct record {
    struct vpmm_tree_key key;
    struct vpmm_tree_node node;
};

static struct vpmm_tree_key key_of(const void *record)
{
    return ((const struct record *)record)->key;
}

static bool record_is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(key_of(record), key);
}

static bool is_below(struct vpmm_tree_key a, struct vpmm_tree_key b)
{
    if (a.major != b.major)
        return a.major < b.major;
    return a.middle < b.middle || (a.middle == b.middle && a.minor < b.minor);
}

/* The answers of a search through all that is in the tree. */
static void check_tree(const struct vpmm_tree *tree, const struct vpmm_table *table,
                       const uint32_t *numbers, size_t n, struct vpmm_tree_key key)
{
    const struct record *first = NULL, *last = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct record *record = vpmm_table_at(table, numbers[i]);
        if (is_below(record->key, key))
            last = !last || is_below(last->key, record->key) ? record : last;
        else
            first = !first || is_below(record->key, first->key) ? record : first;
    }
    assert_ptr_equal(vpmm_table_at(table, vpmm_tree_first_from(tree, key)), first);
    assert_ptr_equal(vpmm_table_at(table, vpmm_tree_last_before(tree, key)), last);
}

static void op_tree(void)
{
    struct vpmm_table table;
    uint32_t numbers[RECORDS_MAX];
    size_t n = 0;
    uint64_t n_calls = input_byte(&input);
    assert_int_equal(vpmm_table_init(&table, sizeof(struct record), &vpmm_memory_system), VPMM_OK);
    struct vpmm_tree tree = {&table, offsetof(struct record, node), key_of, record_is_below, 0};
    for (uint64_t i = 0; i < n_calls; i++) {
        uint64_t kind = input_byte(&input);
        struct vpmm_tree_key key = {kind % 4, kind / 4 % 2, input_byte(&input)};
        bool is_there = false;
        for (size_t j = 0; j < n; j++) {
            const struct record *record = vpmm_table_at(&table, numbers[j]);
            is_there |= !is_below(record->key, key) && !is_below(key, record->key);
        }
        if (kind & 0x80 && n) {
            size_t j = kind / 8 % n;
            vpmm_tree_remove(&tree, numbers[j]);
            vpmm_table_give(&table, numbers[j]);
            numbers[j] = numbers[--n];
        } else if (!is_there && n < RECORDS_MAX) {
            uint32_t number = vpmm_table_take(&table);
            for (size_t j = 0; j < n; j++)
                assert_true(numbers[j] != number);
            *(struct record *)vpmm_table_at(&table, number) = (struct record){.key = key};
            vpmm_tree_insert(&tree, number);
            numbers[n++] = number;
        }
        assert_int_equal(table.n_used, n);
        check_tree(&tree, &table, numbers, n, key);
    }
    vpmm_table_finish(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const operations[])(void) = {op_arithmetic, op_parse, op_print,
                                               op_text,       op_bits,  op_tree};
    input = (struct input){data, data + bytes};
    while (!input_is_over(&input))
        operations[input_below(&input, 6)]();
    return 0;
}
