/* SPDX-License-Identifier: MIT */
/* The header of a safetensors file: what is read, and one sentence for each thing that is wrong. */
#include "offload/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct vpmm_safetensors table;
static char message[256];

/* A header and so many bytes of data behind it. */
static enum vpmm_status read_text(const char *header, uint64_t data_bytes)
{
    size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
    for (size_t i = 0; i < length; i++)
        bytes[8 + i] = (unsigned char)header[i];
    enum vpmm_status status =
        vpmm_safetensors_read(bytes, 8 + length, 8 + length + data_bytes, &vpmm_memory_system,
                              &table, message, sizeof message);
    free(bytes);
    return status;
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define B "\"b.c\":{\"data_offsets\":[24,28],\"shape\":[],\"dtype\":\"I32\"}"

static void test_reads(void **state)
{
    (void)state;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\n\\u0000\"}, " A ",\n" B "}   ";
    assert_int_equal(read_text(header, 28), VPMM_OK);
    assert_int_equal(table.n_tensors, 2);
    const struct vpmm_tensor *tensor = vpmm_safetensors_find(&table, "a");
    assert_ptr_equal(tensor, &table.tensors[0]);
    assert_string_equal(tensor->dtype, "F32");
    assert_int_equal(tensor->n_dimensions, 2);
    assert_int_equal(tensor->shape[1], 3);
    assert_int_equal(tensor->bytes, 24);
    assert_int_equal(tensor->offset, 8 + strlen(header));
    tensor = vpmm_safetensors_find(&table, "b.c");
    assert_int_equal(tensor->offset, 8 + strlen(header) + 24);
    assert_int_equal(tensor->bytes, 4);
    assert_null(vpmm_safetensors_find(&table, "b"));
    vpmm_safetensors_finish(&table);
    assert_int_equal(read_text("{}", 0), VPMM_OK);
    assert_null(vpmm_safetensors_find(&table, "a"));
    vpmm_safetensors_finish(&table);
    assert_int_equal(read_text("{\"\\u00e4\\ud83d\\ude00\\/\":{\"dtype\":\"U8\",\"shape\":[0,9],"
                               "\"data_offsets\":[0,0]}}",
                               0),
                     VPMM_OK);
    assert_non_null(vpmm_safetensors_find(&table, "\xc3\xa4\xf0\x9f\x98\x80/"));
    vpmm_safetensors_finish(&table);
}

/* Many names, in no order of their places. */
static void test_many(void **state)
{
    (void)state;
    char *header = malloc(3000 * 80), *at = header, name[24];
    assert_non_null(header);
    *at++ = '{';
    for (unsigned i = 0; i < 3000; i++) {
        unsigned place = i * 7 % 3000;
        at += sprintf(at, "%s\"w.%u\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%u,%u]}",
                      i ? "," : "", i, place * 4, place * 4 + 4);
    }
    strcpy(at, "}");
    assert_int_equal(read_text(header, 12000), VPMM_OK);
    for (unsigned i = 0; i < 3000; i++) {
        sprintf(name, "w.%u", i);
        const struct vpmm_tensor *tensor = vpmm_safetensors_find(&table, name);
        assert_non_null(tensor);
        assert_int_equal(tensor->offset, 8 + strlen(header) + i * 7 % 3000 * 4);
    }
    vpmm_safetensors_finish(&table);
    free(header);
}

#define T(members) "{\"t\":{" members "}}"
#define U8(shape, offsets) T("\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets)

static const struct {
    const char *header;
    uint64_t data_bytes;
    const char *words;
} wrong[] = {
    {"", 0, "begins with '{'"},
    {"[]", 0, "begins with '{'"},
    {"{", 0, "a string should stand here"},
    {"{} x", 0, "behind the header's end"},
    {"{\"a", 0, "a string does not end"},
    {"{\"a\\q\":{}}", 0, "an escape is unknown"},
    {"{\"a\\u12\":{}}", 0, "an escape is not complete"},
    {"{\"\\ud800x\":{}}", 0, "half a character"},
    {"{\"a\\u0000\":{}}", 0, "control character"},
    {"{\"a\nb\":{}}", 0, "control character"},
    {"{\"a\xff\":{}}", 0, "not UTF-8"},
    {"{\"\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xc1\xbf\":{}}", 0, "not UTF-8"},
    {"{\"\xe0\x9f\xbf\":{}}", 0, "not UTF-8"},
    {"{\"\xed\xa0\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xf0\x8f\xbf\xbf\":{}}", 0, "not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xf5\x80\x80\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xe2\x82\":{}}", 0, "not UTF-8"},
    {"{\"__metadata__\":{\"k\":\"\xff\"}}", 0, "not UTF-8"},
    {"{\"a\"}", 0, "':' is missing"},
    {"{\"a\":{}}", 0, "tensor \"a\": dtype, shape or data_offsets are missing"},
    {"{\"a\":7}", 0, "a tensor's object should stand here"},
    {"{" A "," A "}", 24, "tensor \"a\": it stands there twice"},
    {"{" A "}", 23, "tensor \"a\": its data_offsets reach past the end of the file"},
    {"{" A "}", 25, "no tensor has the last bytes"},
    {"{" A, 24, "the header is not complete"},
    {"{" B "}", 28, "tensor \"b.c\": no tensor has the bytes before it"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands there twice"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a string should stand here"},
    {T("\"dtype\":\"X9\""), 0, "the dtype is unknown"},
    {T("\"dtype\":\"U8\",\"dtype\":\"U8\""), 0, "a member stands there twice"},
    {T("\"strides\":[1]"), 0, "and nothing else"},
    {U8("[-1]", "[0,1]"), 1, "whole number"},
    {U8("[1.5]", "[0,1]"), 1, "a list is not complete"},
    {U8("[01]", "[0,1]"), 1, "whole number"},
    {U8("[99999999999999999999]", "[0,1]"), 1, "too large"},
    {U8("[4294967296,4294967296]", "[0,1]"), 1, "its shape is no number of bytes"},
    {U8("[2305843009213693953]", "[0,1]"), 1, "its shape is no number of bytes"},
    {U8("[2]", "[0,1]"), 1, "another size"},
    {U8("[1]", "[1,0]"), 1, "end before they begin"},
    {U8("[1]", "[0]"), 1, "two numbers"},
    {U8("[1]", "[0,1,2]"), 1, "two numbers"},
    {U8("[1]", "[0,18446744073709551615]"), 1, "past the end"},
    {T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, "no number of bytes"},
    {U8("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "more than 16 dimensions"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "another tensor's, too"},
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        enum vpmm_status status = read_text(wrong[i].header, wrong[i].data_bytes);
        if (status != VPMM_UNSOUND || !strstr(message, wrong[i].words))
            fail_msg("%s: status %d, \"%s\" does not say \"%s\"", wrong[i].header, (int)status,
                     message, wrong[i].words);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    static const unsigned char bytes[16] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static const unsigned char huge[16] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    static const unsigned char long_one[16] = {9};
    for (uint64_t n = 0; n < 8; n++)
        assert_int_equal(vpmm_safetensors_read(bytes, n, n, &vpmm_memory_system, &table, message,
                                               sizeof message),
                         VPMM_UNSOUND);
    assert_non_null(strstr(message, "too short"));
    assert_int_equal(
        vpmm_safetensors_read(huge, 16, 16, &vpmm_memory_system, &table, message, sizeof message),
        VPMM_UNSOUND);
    assert_non_null(strstr(message, "longer than"));
    assert_int_equal(vpmm_safetensors_read(long_one, 16, 16, &vpmm_memory_system, &table, message,
                                           sizeof message),
                     VPMM_UNSOUND);
    assert_non_null(strstr(message, "past the end"));
    assert_int_equal(
        vpmm_safetensors_read(bytes, 10, 10, &vpmm_memory_system, &table, message, sizeof message),
        VPMM_OK);
    vpmm_safetensors_finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
