/* SPDX-License-Identifier: MIT */
/* Sound metadata of a process that has pools on two simulated devices, in a file that a look finds
 * in this process, and may be damaged. What the metadata tell of is gone: their addresses are free.
 */
#ifndef VPMM_TEST_FUZZ_LOOK_SAMPLE_H
#define VPMM_TEST_FUZZ_LOOK_SAMPLE_H

#include "base/arena.h"

struct look_sample {
    int fd;
    uint64_t bytes;  /* used, from the beginning of the file on; most were never written */
    void *address;   /* where the metadata want to be mapped */
    uint64_t *words; /* the used part of the file, to be written */
    uint64_t *sound; /* what was written, one page after the other */
    size_t n_sound;  /* words of it */
    size_t *pages;   /* for each page of them, which word of the file is its first */
};

/* Which word of the file one of the sound words is. */
size_t look_sample_place(const struct look_sample *sample, size_t sound);

/* Once in a process, which never gives it back. */
void look_sample_make(struct look_sample *sample_out);

#endif
