/* SPDX-License-Identifier: MIT */
/* A check of cmocka's that fails ends the process at once, as a fuzzer wants it. */
#define _POSIX_C_SOURCE 200809L
#include "input.h"

#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return setenv("CMOCKA_TEST_ABORT", "1", 1);
}
