/* SPDX-License-Identifier: MIT */
/* The `vpmm` command: what its subcommands share. Each is a function of the words after `vpmm`, of
 * which the first is its own name; it returns the exit status. */
#ifndef VPMM_CLI_CLI_H
#define VPMM_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses. `vpmm run` returns the program's own. */
#define VPMM_CLI_FAILED 1 /* what was asked for cannot be had: no such process, no room, no GPU */
#define VPMM_CLI_WRONG 2  /* bad arguments, or a file that is not what it should be */

struct vpmm_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line, for `vpmm --help` */
    const char *help;    /* for `vpmm help NAME`: usage, options, examples */
};

/* One line on standard error, whatever bytes the text has: "vpmm NAME: TEXT". Returns
 * VPMM_CLI_FAILED. */
int vpmm_cli_fail(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, with a second line that says where help is. Returns VPMM_CLI_WRONG. */
int vpmm_cli_wrong(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What getopt_long could not take ('?' or ':', with its opterr at 0) in words, as vpmm_cli_wrong.
 */
int vpmm_cli_wrong_option(const char *command, int found, char *const *argv);
/* The same of a value that an option does not take: "OPTION 'VALUE' is not accepted: it takes
 * TAKES". */
int vpmm_cli_wrong_value(const char *command, const char *option, const char *value,
                         const char *takes);

/* A whole number from `least` to `most`; false where `text` is none. */
bool vpmm_cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *number_out);

/* As vpmm_cli_wrong_value, where it takes such a number. */
int vpmm_cli_wrong_number(const char *command, const char *option, const char *value,
                          uint64_t least, uint64_t most);

/* The help topic that the option table is. */
int vpmm_cli_show_options(void);

int vpmm_cli_dump(int argc, char **argv);
int vpmm_cli_plot(int argc, char **argv);
int vpmm_cli_replay(int argc, char **argv);
int vpmm_cli_run(int argc, char **argv);
int vpmm_cli_stat(int argc, char **argv);
int vpmm_cli_top(int argc, char **argv);
int vpmm_cli_trace(int argc, char **argv);

extern const char vpmm_help_dump[], vpmm_help_plot[], vpmm_help_replay[], vpmm_help_run[],
    vpmm_help_stat[], vpmm_help_top[], vpmm_help_trace[];

#endif
