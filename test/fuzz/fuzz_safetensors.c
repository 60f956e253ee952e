/* SPDX-License-Identifier: MIT */
/* Bytes become the beginning of a safetensors file; the first two say how much follows. Whatever is
 * accepted lies in the file and covers it, is found by its name and is of its shape's size;
 * whatever is refused has a sentence without control characters. */
#include "input.h"

#include "offload/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "fuzz_safetensors.c:%d: %s\n", __LINE__, #condition);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

static void check_table(const struct vpmm_safetensors *table, uint64_t header_end,
                        uint64_t file_bytes)
{
    uint64_t covered = 0;
    for (uint32_t i = 0; i < table->n_tensors; i++) {
        const struct vpmm_tensor *tensor = &table->tensors[i];
        CHECK(vpmm_safetensors_find(table, tensor->name) == tensor);
        CHECK(tensor->offset >= header_end && tensor->offset <= file_bytes);
        CHECK(tensor->bytes <= file_bytes - tensor->offset);
        CHECK(tensor->n_dimensions <= VPMM_SAFETENSORS_DIMENSIONS_MAX);
        CHECK(memchr(tensor->dtype, 0, sizeof tensor->dtype));
        covered += tensor->bytes;
    }
    CHECK(covered == file_bytes - header_end);
    CHECK(!vpmm_safetensors_find(table, "\x01"));
}

static void check_message(const char *message, size_t room)
{
    CHECK(memchr(message, 0, room));
    CHECK(message[0]);
    for (; *message; message++)
        CHECK((unsigned char)*message >= ' ' && *message != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct vpmm_safetensors table;
    char message[160];
    if (bytes < 2)
        return 0;
    uint64_t data_bytes = (uint64_t)data[0] << 8 | data[1];
    uint64_t n_bytes = bytes - 2;
    enum vpmm_status status =
        vpmm_safetensors_read(data + 2, n_bytes, n_bytes + data_bytes, &vpmm_memory_system, &table,
                              message, sizeof message);
    if (status) {
        CHECK(status == VPMM_UNSOUND);
        check_message(message, sizeof message);
        return 0;
    }
    uint64_t header_bytes = 0;
    for (unsigned i = 8; i-- > 0;)
        header_bytes = header_bytes << 8 | data[2 + i];
    check_table(&table, 8 + header_bytes, n_bytes + data_bytes);
    vpmm_safetensors_finish(&table);
    return 0;
}
