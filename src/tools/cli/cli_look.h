/* SPDX-License-Identifier: MIT */
/* A look at another process, made in a child of the command: whatever is found there, however
 * damaged, ends the child at most, and the child ends within two seconds. Where something of the
 * child lies at the addresses, it runs the command again, which then lies elsewhere. */
#ifndef VPMM_CLI_LOOK_H
#define VPMM_CLI_LOOK_H

#include "cli/attach.h"

/* The option by which the command tells itself how often it has run itself again; its standard
 * output is then the file of the look. */
#define VPMM_LOOK_AGAIN "again"

struct vpmm_look {
    const char *command; /* the subcommand, for messages */
    uint64_t pid;
    unsigned n_tries;   /* what VPMM_LOOK_AGAIN said; 0: it is not there */
    bool is_quiet;      /* no message of one that fails */
    char *const *words; /* of the command line after the subcommand's name, NULL past the last */
    /* Writes what is to be shown to `fd`. Runs in the child. Returns an exit status. */
    int (*show)(const struct vpmm_look *look, const struct vpmm_attached *attached, int fd);
    void *self;
};

/* Reads the words PID and N of a command line; false, with a status after a message: they are
 * wrong. */
bool vpmm_look_read_pid(struct vpmm_look *look, int n_words, char *const *words, int *status_out);
bool vpmm_look_read_tries(struct vpmm_look *look, const char *text, int *status_out);

/* Makes the look; what it wrote is in `*fd_out`, from its beginning on, for the caller to read and
 * close. Otherwise the exit status, after a message. */
int vpmm_look(const struct vpmm_look *look, int *fd_out);

/* The same, and all that it wrote goes to standard output. */
int vpmm_look_print(const struct vpmm_look *look);

#endif
