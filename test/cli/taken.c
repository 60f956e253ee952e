/* SPDX-License-Identifier: MIT */
/* Preloaded into the command: takes the addresses TAKEN_ADDRESS for itself, until the command has
 * run itself again TAKEN_TIMES times. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned count_tries(void)
{
    char word[256];
    size_t n = 0;
    unsigned tries = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    for (int c = file ? fgetc(file) : EOF; c != EOF; c = fgetc(file)) {
        word[n] = (char)c;
        n = c && n + 1 < sizeof word ? n + 1 : 0;
        if (!c)
            (void)sscanf(word, "--again=%u", &tries);
    }
    if (file)
        (void)fclose(file);
    return tries;
}

__attribute__((constructor)) static void take(void)
{
    const char *address = getenv("TAKEN_ADDRESS"), *times = getenv("TAKEN_TIMES");
    if (!address || !times || count_tries() >= strtoul(times, NULL, 10))
        return;
    void *wanted = (void *)strtoul(address, NULL, 16);
    (void)mmap(wanted, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}
