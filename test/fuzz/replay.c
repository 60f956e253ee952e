/* SPDX-License-Identifier: MIT */
/* replay CORPUS: runs a fuzz target on each line of a corpus, which holds one input in hexadecimal
 * digits. It prints the number of each line before it runs it, so the last one printed is the one
 * that failed. replay CORPUS LINE: runs that line alone. */
#include "input.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 65536

/* Length of the input, or -1 for a line that is not one. */
static long decode(const char *line, uint8_t *bytes_out)
{
    long n = 0;
    for (; isxdigit((unsigned char)line[0]) && isxdigit((unsigned char)line[1]); line += 2) {
        const char digits[3] = {line[0], line[1], 0};
        bytes_out[n++] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return *line == '\n' ? n : -1;
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    long only = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    FILE *corpus = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!corpus) {
        fprintf(stderr, "usage: %s CORPUS [LINE]\n", argv[0]);
        return 2;
    }
    (void)LLVMFuzzerInitialize(&argc, &argv);
    long n_run = 0;
    for (long number = 1; fgets(line, sizeof line, corpus); number++) {
        if (only && number != only)
            continue;
        /* The exact size, so that a sanitizer sees a read past the end. */
        uint8_t *bytes = malloc(sizeof line);
        long n = bytes ? decode(line, bytes) : -1;
        uint8_t *input = n < 0 ? NULL : realloc(bytes, n ? (size_t)n : 1);
        if (!input) {
            fprintf(stderr, "%s:%ld: not a line of hexadecimal digits\n", argv[1], number);
            return 1;
        }
        printf("%ld ", number);
        (void)fflush(stdout);
        (void)LLVMFuzzerTestOneInput(input, (size_t)n);
        free(input);
        n_run++;
    }
    (void)fclose(corpus);
    printf("\n%ld inputs\n", n_run);
    return n_run > 0 ? 0 : 1;
}
