/* SPDX-License-Identifier: MIT */
/* Where the tests of this folder collect what is written to a file descriptor. */
#ifndef VPMM_TEST_OBSERVE_CAPTURE_H
#define VPMM_TEST_OBSERVE_CAPTURE_H

#include <sys/types.h>
#include <unistd.h>
#include <stdio.h>

/* A file without a name. */
static inline int capture_open(void)
{
    FILE *file = tmpfile();
    return file ? dup(fileno(file)) : -1;
}

/* All that was written to `fd`, terminated; the file is empty again. */
static inline const char *capture_text(int fd)
{
    static char text[1 << 20];
    off_t length = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 && n == length ? n : 0] = 0;
    (void)!ftruncate(fd, 0);
    (void)lseek(fd, 0, SEEK_SET);
    return text;
}

#endif
