/* SPDX-License-Identifier: MIT */
/* What kind of file an executable is, as far as a preload is concerned. */
#ifndef VPMM_CLI_PROGRAM_H
#define VPMM_CLI_PROGRAM_H

#include <linux/limits.h>
#include <stdbool.h>

struct vpmm_program {
    bool is_shared;      /* code that can be loaded anywhere: a library, or such an executable */
    bool is_static;      /* no loader reads LD_PRELOAD for it */
    bool is_foreign;     /* for another kind of machine than this command is */
    bool is_secure;      /* setuid, setgid or with capabilities that the caller has not: the loader
                            ignores a preload */
    char path[PATH_MAX]; /* of the interpreter, where it is a script; of itself otherwise */
};

/* Looks at the file; of one that cannot be read, or is none of these, all is false. */
void vpmm_program_look(const char *path, struct vpmm_program *program_out);

/* Whether the shared library, of a machine as this one, offers a dynamic symbol of that name. */
bool vpmm_program_offers(const char *path, const char *symbol);

/* The file that execvp would run for `name`. False: there is none. */
bool vpmm_program_find(const char *name, char path_out[PATH_MAX]);

#endif
