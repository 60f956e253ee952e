/* SPDX-License-Identifier: MIT */
/* Where libvpmm.so is, and how it gets into LD_PRELOAD. */
#ifndef VPMM_CLI_LIBRARY_H
#define VPMM_CLI_LIBRARY_H

#include <linux/limits.h>
#include <stdbool.h>

/* What the library offers, and no other: libvpmm_api.a finds it in a process by that. */
#define VPMM_LIBRARY_SYMBOL "vpmm_interface_1"

enum vpmm_library_problem {
    VPMM_LIBRARY_FOUND,
    VPMM_LIBRARY_NOT_THERE, /* no such file, or it cannot be read */
    VPMM_LIBRARY_NO_ELF,    /* it is no shared library of this machine */
    VPMM_LIBRARY_FOREIGN,   /* it is a shared library, and not libvpmm.so */
    VPMM_LIBRARY_NO_NAME, /* LD_PRELOAD cannot name it: a space, a colon or a dollar is in its path
                           */
    VPMM_LIBRARY_NOWHERE, /* no place where it is looked for has it */
};

/* The absolute path of the library: `given` (NULL: VPMM_LIBRARY, or where that is not set, the
 * build folder that this command is in, then the places where it is installed, beside this command
 * first). Where it is not found, `path_out` is what the problem is with, or where it was looked
 * for last. */
enum vpmm_library_problem vpmm_library_find(const char *given, char path_out[PATH_MAX]);

/* The value of LD_PRELOAD with the library at its end; what is there stays before it, and if the
 * library is there already, that is all. The caller frees it; NULL: no memory. */
char *vpmm_library_preload(const char *path, const char *present);

#endif
