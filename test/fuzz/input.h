/* SPDX-License-Identifier: MIT */
/* A fuzzer's bytes, read as decisions. Past the end every decision is 0. */
#ifndef VPMM_TEST_FUZZ_INPUT_H
#define VPMM_TEST_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What libFuzzer and replay.c call; the input stays the caller's. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct input {
    const uint8_t *at, *end;
};

static inline bool input_is_over(const struct input *input)
{
    return input->at == input->end;
}

static inline uint64_t input_byte(struct input *input)
{
    return input_is_over(input) ? 0 : *input->at++;
}

/* A number below `limit`, which is at most 256. */
static inline uint64_t input_below(struct input *input, uint64_t limit)
{
    return input_byte(input) % limit;
}

static inline uint64_t input_word(struct input *input)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | input_byte(input);
    return word;
}

#endif
