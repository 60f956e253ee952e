/* SPDX-License-Identifier: MIT */
/* Reads the header of a safetensors file. Must not believe any of it: each number is checked
 * against the file and against the others. */
#include "offload/safetensors.h"

#include "base/bytes.h"
#include "base/text.h"
#include "offload/cover.h"
#include "offload/json.h"

#include <string.h>

#define LENGTH_BYTES 8u
/* No tensor's entry is shorter: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]} */
#define ENTRY_BYTES 45u
#define WORD_ROOM 64

static const struct {
    char name[12];
    unsigned bits;
} dtypes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8},     {"I16", 16},        {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},        {"F32", 32}, {"F64", 64},    {"I64", 64},
    {"U64", 64},        {"C64", 64},        {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

struct reading {
    struct json json;
    struct vpmm_safetensors *table;
    uint64_t data_offset, data_bytes; /* in the file */
    size_t names_used;
    struct vpmm_text *message;
    bool has_failed; /* the message is written */
};

/* ---- what is wrong ---- */

static void say(struct reading *reading, const char *fault)
{
    if (!reading->has_failed)
        vpmm_text_string(reading->message, fault);
    reading->has_failed = true;
}

/* "tensor "NAME": FAULT" */
static void say_of(struct reading *reading, const struct vpmm_tensor *tensor, const char *fault)
{
    if (reading->has_failed)
        return;
    vpmm_text_string(reading->message, "tensor ");
    vpmm_text_quoted(reading->message, tensor->name);
    vpmm_text_string(reading->message, ": ");
    say(reading, fault);
}

static void say_fault(struct reading *reading)
{
    if (reading->has_failed || !reading->json.fault)
        return;
    vpmm_text_string(reading->message, "byte ");
    vpmm_text_decimal(reading->message,
                      LENGTH_BYTES + (uint64_t)(reading->json.at - reading->json.begin), 0);
    vpmm_text_string(reading->message, " of the header: ");
    say(reading, reading->json.fault);
}

/* ---- names ---- */

static uint32_t hash(const char *name)
{
    uint32_t value = 2166136261u;
    for (; *name; name++)
        value = (value ^ (unsigned char)*name) * 16777619u;
    return value;
}

/* Where the name is in the index, or could be. */
static uint32_t *place(const struct vpmm_safetensors *table, const char *name)
{
    uint32_t at = hash(name) & (table->index_room - 1);
    while (table->index[at] && strcmp(table->tensors[table->index[at] - 1].name, name) != 0)
        at = (at + 1) & (table->index_room - 1);
    return &table->index[at];
}

const struct vpmm_tensor *vpmm_safetensors_find(const struct vpmm_safetensors *table,
                                                const char *name)
{
    uint32_t number = table->index_room ? *place(table, name) : 0;
    return number ? &table->tensors[number - 1] : NULL;
}

/* ---- one tensor ---- */

static void read_dtype(struct reading *reading, struct vpmm_tensor *tensor)
{
    char word[WORD_ROOM];
    size_t length = json_string(&reading->json, word, sizeof word);
    for (size_t i = 0; !reading->json.fault && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(word, dtypes[i].name) == 0) {
            memcpy(tensor->dtype, word, length + 1);
            return;
        }
    }
    json_fail(&reading->json, "the dtype is unknown");
}

static void read_shape(struct reading *reading, struct vpmm_tensor *tensor)
{
    struct json *json = &reading->json;
    json_expect(json, '[', "a list should stand here");
    if (json_take(json, ']'))
        return;
    do {
        if (tensor->n_dimensions == VPMM_SAFETENSORS_DIMENSIONS_MAX) {
            json_fail(json, "a shape has more than 16 dimensions");
            return;
        }
        tensor->shape[tensor->n_dimensions++] = json_number(json);
    } while (json_more(json, ']', "a list is not complete"));
}

static void read_offsets(struct reading *reading, uint64_t *begin_out, uint64_t *end_out)
{
    struct json *json = &reading->json;
    json_expect(json, '[', "a list should stand here");
    *begin_out = json_number(json);
    json_expect(json, ',', "data_offsets are two numbers");
    *end_out = json_number(json);
    json_expect(json, ']', "data_offsets are two numbers");
}

enum {
    HAS_DTYPE = 1,
    HAS_SHAPE = 2,
    HAS_OFFSETS = 4,
    HAS_ALL = 7
};

/* One member of a tensor's object; which one. */
static unsigned read_member(struct reading *reading, struct vpmm_tensor *tensor, uint64_t *begin,
                            uint64_t *end)
{
    char key[WORD_ROOM];
    (void)json_string(&reading->json, key, sizeof key);
    json_expect(&reading->json, ':', "a ':' is missing");
    if (strcmp(key, "dtype") == 0) {
        read_dtype(reading, tensor);
        return HAS_DTYPE;
    }
    if (strcmp(key, "shape") == 0) {
        tensor->n_dimensions = 0;
        read_shape(reading, tensor);
        return HAS_SHAPE;
    }
    if (strcmp(key, "data_offsets") == 0) {
        read_offsets(reading, begin, end);
        return HAS_OFFSETS;
    }
    json_fail(&reading->json, "a tensor has dtype, shape and data_offsets, and nothing else");
    return 0;
}

/* Its size in bytes by shape and type; false: it is no number of bytes. */
static bool count_bytes(const struct vpmm_tensor *tensor, uint64_t *bytes_out)
{
    uint64_t bits = 1;
    for (uint32_t i = 0; i < tensor->n_dimensions; i++)
        if (!vpmm_bytes_multiply(bits, tensor->shape[i], &bits))
            return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(tensor->dtype, dtypes[i].name) == 0 &&
            !vpmm_bytes_multiply(bits, dtypes[i].bits, &bits))
            return false;
    *bytes_out = bits / 8;
    return bits % 8 == 0;
}

static void check_tensor(struct reading *reading, struct vpmm_tensor *tensor, unsigned has,
                         uint64_t begin, uint64_t end)
{
    uint64_t bytes;
    if (has != HAS_ALL)
        say_of(reading, tensor, "dtype, shape or data_offsets are missing");
    else if (begin > end)
        say_of(reading, tensor, "its data_offsets end before they begin");
    else if (end > reading->data_bytes)
        say_of(reading, tensor, "its data_offsets reach past the end of the file");
    else if (!count_bytes(tensor, &bytes))
        say_of(reading, tensor, "its shape is no number of bytes");
    else if (bytes != end - begin)
        say_of(reading, tensor, "its shape and dtype need another size than its data_offsets give");
    tensor->offset = reading->data_offset + begin;
    tensor->bytes = end - begin;
}

static void read_tensor(struct reading *reading, const char *name)
{
    struct vpmm_safetensors *table = reading->table;
    struct vpmm_tensor *tensor = &table->tensors[table->n_tensors];
    uint64_t begin = 0, end = 0;
    unsigned has = 0;
    tensor->name = name;
    uint32_t *index = place(table, name);
    json_expect(&reading->json, '{', "a tensor's object should stand here");
    if (!json_take(&reading->json, '}'))
        do {
            unsigned member = read_member(reading, tensor, &begin, &end);
            if (has & member)
                json_fail(&reading->json, "a member stands there twice");
            has |= member;
        } while (json_more(&reading->json, '}', "an object is not complete"));
    if (reading->json.fault)
        return;
    if (*index)
        say_of(reading, tensor, "it stands there twice");
    check_tensor(reading, tensor, has, begin, end);
    *index = ++table->n_tensors;
}

/* ---- the header ---- */

/* An object of strings, which nobody here needs. */
static void read_metadata(struct reading *reading)
{
    struct json *json = &reading->json;
    char *scratch = reading->table->names + reading->names_used;
    size_t room = reading->table->names_bytes - reading->names_used;
    json_expect(json, '{', "__metadata__ is an object");
    if (json_take(json, '}'))
        return;
    do {
        (void)json_string(json, scratch, room);
        json_expect(json, ':', "a ':' is missing");
        (void)json_string(json, scratch, room);
    } while (json_more(json, '}', "__metadata__ is not complete"));
}

/* Names are shown in messages and looked up as C's strings. */
static bool is_plain(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return false;
    return true;
}

static void read_entries(struct reading *reading)
{
    struct json *json = &reading->json;
    bool has_metadata = false;
    json_expect(json, '{', "the header begins with '{'");
    if (json_take(json, '}'))
        return;
    do {
        char *name = reading->table->names + reading->names_used;
        size_t length = json_string(json, name, reading->table->names_bytes - reading->names_used);
        json_expect(json, ':', "a ':' is missing");
        if (!is_plain(name, length))
            json_fail(json, "a name holds a control character");
        if (json->fault)
            return;
        if (strcmp(name, "__metadata__") != 0) {
            reading->names_used += length + 1;
            read_tensor(reading, name);
        } else if (has_metadata) {
            json_fail(json, "__metadata__ stands there twice");
        } else {
            has_metadata = true;
            read_metadata(reading);
        }
    } while (!reading->has_failed && json_more(json, '}', "the header is not complete"));
}

/* ---- all of it ---- */

static void check_cover(struct reading *reading, uint32_t *order)
{
    const struct vpmm_safetensors *table = reading->table;
    uint64_t at = reading->data_offset;
    cover_sort(table->tensors, order, table->n_tensors);
    for (uint32_t i = 0; i < table->n_tensors; i++) {
        const struct vpmm_tensor *tensor = &table->tensors[order[i]];
        if (tensor->offset < at)
            say_of(reading, tensor, "its bytes are another tensor's, too");
        else if (tensor->offset > at)
            say_of(reading, tensor, "no tensor has the bytes before it");
        at = tensor->offset + tensor->bytes;
    }
    if (at != reading->data_offset + reading->data_bytes)
        say(reading, "no tensor has the last bytes of the file");
}

static bool make_tables(struct vpmm_safetensors *table, uint64_t header_bytes)
{
    const struct vpmm_memory *memory = table->memory;
    uint64_t most = header_bytes / ENTRY_BYTES + 1;
    table->index_room = 2;
    while (table->index_room < 2 * most)
        table->index_room *= 2;
    table->tensors_bytes = most * sizeof *table->tensors;
    table->index_bytes = table->index_room * sizeof *table->index;
    table->names_bytes = header_bytes + 1;
    table->tensors = memory->map(memory->self, table->tensors_bytes);
    table->index = memory->map(memory->self, table->index_bytes);
    table->names = memory->map(memory->self, table->names_bytes);
    return table->tensors && table->index && table->names;
}

void vpmm_safetensors_finish(struct vpmm_safetensors *table)
{
    const struct vpmm_memory *memory = table->memory;
    if (table->tensors)
        memory->unmap(memory->self, table->tensors, table->tensors_bytes);
    if (table->index)
        memory->unmap(memory->self, table->index, table->index_bytes);
    if (table->names)
        memory->unmap(memory->self, table->names, table->names_bytes);
    memset(table, 0, sizeof *table);
}

/* How long the header is; false: that cannot be. */
static bool read_length(struct reading *reading, const unsigned char *bytes, uint64_t n_bytes,
                        uint64_t file_bytes, uint64_t *length_out)
{
    uint64_t length = 0;
    if (n_bytes < LENGTH_BYTES || file_bytes < LENGTH_BYTES) {
        say(reading, "it is too short to be a safetensors file");
        return false;
    }
    for (unsigned i = LENGTH_BYTES; i-- > 0;)
        length = length << 8 | bytes[i];
    if (length > VPMM_SAFETENSORS_HEADER_MAX)
        say(reading, "its header is longer than 100,000,000 bytes: it is no safetensors file");
    else if (length > file_bytes - LENGTH_BYTES || length > n_bytes - LENGTH_BYTES)
        say(reading, "its header reaches past the end of the file");
    *length_out = length;
    return !reading->has_failed;
}

static enum vpmm_status read_header(struct reading *reading, uint64_t header_bytes)
{
    const struct vpmm_memory *memory = reading->table->memory;
    read_entries(reading);
    bool is_space = true;
    while (is_space)
        is_space = json_take(&reading->json, ' ');
    if (!reading->has_failed && reading->json.at != reading->json.end)
        json_fail(&reading->json, "something stands behind the header's end");
    say_fault(reading);
    if (reading->has_failed)
        return VPMM_UNSOUND;
    uint32_t *order = memory->map(memory->self, header_bytes + sizeof *order);
    if (!order)
        return VPMM_NO_METADATA;
    check_cover(reading, order);
    memory->unmap(memory->self, order, header_bytes + sizeof *order);
    return reading->has_failed ? VPMM_UNSOUND : VPMM_OK;
}

enum vpmm_status vpmm_safetensors_read(const void *bytes, uint64_t n_bytes, uint64_t file_bytes,
                                       const struct vpmm_memory *memory,
                                       struct vpmm_safetensors *table_out, char *message,
                                       size_t room)
{
    struct vpmm_safetensors table = {.memory = memory};
    struct vpmm_text text;
    struct reading reading = {.table = &table, .message = &text};
    uint64_t header_bytes;
    vpmm_text_init(&text, message, room, VPMM_TEXT_CUT);
    if (!read_length(&reading, bytes, n_bytes, file_bytes, &header_bytes))
        return VPMM_UNSOUND;
    const char *begin = (const char *)bytes + LENGTH_BYTES;
    reading.json = (struct json){.begin = begin, .at = begin, .end = begin + header_bytes};
    reading.data_offset = LENGTH_BYTES + header_bytes;
    reading.data_bytes = file_bytes - reading.data_offset;
    enum vpmm_status status = VPMM_NO_METADATA;
    if (make_tables(&table, header_bytes))
        status = read_header(&reading, header_bytes);
    if (status)
        vpmm_safetensors_finish(&table);
    else
        *table_out = table;
    return status;
}
