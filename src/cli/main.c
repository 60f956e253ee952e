/* SPDX-License-Identifier: MIT */
#include "cli/cli.h"

#include "vpmm/vpmm.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_help[] = "usage: vpmm help [TOPIC]\n";

static int show_help(int argc, char **argv);

static const struct vpmm_command commands[] = {
    {"run", vpmm_cli_run, "start a program with the library preloaded", vpmm_help_run},
    {"dump", vpmm_cli_dump, "show every region of a process's pool", vpmm_help_dump},
    {"stat", vpmm_cli_stat, "show the figures of a process", vpmm_help_stat},
    {"top", vpmm_cli_top, "watch all processes that have a pool", vpmm_help_top},
    {"trace", vpmm_cli_trace, "summarise a trace, or convert it to another form", vpmm_help_trace},
    {"replay", vpmm_cli_replay, "replay a trace through the pool or CUDA, and tell what that took",
     vpmm_help_replay},
    {"plot", vpmm_cli_plot, "draw memory over time, as SVG, PNG or a page", vpmm_help_plot},
    {"help", show_help, "say how a command is used", help_help},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

/* What there is help about besides commands. */
static const struct {
    const char *name;
    int (*show)(void);
    const char *summary;
} topics[] = {
    {"options", vpmm_cli_show_options, "what the library reads from the environment"},
};
#define TOPICS (sizeof topics / sizeof topics[0])

static const struct vpmm_command *find_command(const char *name)
{
    for (unsigned i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static void complain(const char *command, const char *format, va_list arguments)
{
    fprintf(stderr, "vpmm%s%s: ", *command ? " " : "", command);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

int vpmm_cli_fail(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(command, format, arguments);
    va_end(arguments);
    return VPMM_CLI_FAILED;
}

int vpmm_cli_wrong(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(command, format, arguments);
    va_end(arguments);
    fprintf(stderr, "See 'vpmm help%s%s'.\n", *command ? " " : "", command);
    return VPMM_CLI_WRONG;
}

int vpmm_cli_wrong_option(const char *command, int found, char *const *argv)
{
    const char *option = argv[optind - 1];
    if (found == ':')
        return vpmm_cli_wrong(command, "%s needs a value", option);
    return vpmm_cli_wrong(command, "there is no option %s", option);
}

bool vpmm_cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *number_out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *number_out = number;
    return *end == '\0' && errno == 0 && number >= least && number <= most;
}

static void show_commands(void)
{
    printf("usage: vpmm COMMAND [ARGUMENTS]\n\n");
    for (unsigned i = 0; i < COMMANDS; i++)
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    printf("\nor about:\n\n");
    for (unsigned i = 0; i < TOPICS; i++)
        printf("  %-8s %s\n", topics[i].name, topics[i].summary);
    printf("\n'vpmm help COMMAND' or 'vpmm help TOPIC' tells more of each.\n");
}

static int show_help(int argc, char **argv)
{
    if (argc > 2)
        return vpmm_cli_wrong("", "help is about one thing at a time");
    if (argc < 2) {
        show_commands();
        return 0;
    }
    for (unsigned i = 0; i < TOPICS; i++)
        if (strcmp(topics[i].name, argv[1]) == 0)
            return topics[i].show();
    const struct vpmm_command *command = find_command(argv[1]);
    if (!command)
        return vpmm_cli_wrong("", "there is no help about '%s'", argv[1]);
    fputs(command->help, stdout);
    return 0;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        show_commands();
        return VPMM_CLI_WRONG;
    }
    if (is_help(argv[1]))
        return show_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) {
        puts("vpmm " VPMM_VERSION);
        return 0;
    }
    const struct vpmm_command *command = find_command(argv[1]);
    if (!command)
        return vpmm_cli_wrong("", "there is no command '%s'", argv[1]);
    if (argc > 2 && is_help(argv[2])) {
        fputs(command->help, stdout);
        return 0;
    }
    opterr = 0;
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    int status = run_command(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0)
        return vpmm_cli_fail("", "standard output cannot be written: %s", strerror(errno));
    return status;
}
