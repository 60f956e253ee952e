/* SPDX-License-Identifier: MIT */
/* The command `vpmm`: chooses the subcommand, shows help, and tells what is wrong with arguments.
 * Must not write an error to standard output. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include "vpmm/vpmm.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A path and some words. */
#define LINE_ROOM 8192

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
    char text[LINE_ROOM];
    (void)vsnprintf(text, sizeof text, format, arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    fprintf(stderr, "vpmm%s%s: %s\n", *command ? " " : "", command, text);
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
    const char *word = argv[optind - 1], *cluster = argv[optind];
    /* A word of several letters is not left behind before its last one. */
    bool is_in_cluster = found == '?' && optopt > ' ' && cluster && cluster[0] == '-' &&
                         cluster[1] != '-' && strchr(cluster, optopt);
    bool is_long = !is_in_cluster && strncmp(word, "--", 2) == 0;
    if (!is_long && optopt > ' ' && optopt < 0x7f && found == '?')
        return vpmm_cli_wrong(command, "there is no option -%c", optopt);
    if (found == ':')
        return vpmm_cli_wrong(command, "%s needs a value", word);
    if (is_long && optopt && strchr(word, '='))
        return vpmm_cli_wrong(command, "%.*s takes no value", (int)strcspn(word, "="), word);
    return vpmm_cli_wrong(command, "there is no option %s", word);
}

int vpmm_cli_wrong_value(const char *command, const char *option, const char *value,
                         const char *takes)
{
    return vpmm_cli_wrong(command, "%s '%s' is not accepted: it takes %s", option, value, takes);
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

int vpmm_cli_wrong_number(const char *command, const char *option, const char *value,
                          uint64_t least, uint64_t most)
{
    char takes[64];
    (void)snprintf(takes, sizeof takes, "a number from %" PRIu64 " to %" PRIu64, least, most);
    return vpmm_cli_wrong_value(command, option, value, takes);
}

static void show_commands(FILE *file)
{
    fputs("usage: vpmm COMMAND [ARGUMENTS]\n\n", file);
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(file, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\nor about:\n\n", file);
    for (unsigned i = 0; i < TOPICS; i++)
        fprintf(file, "  %-8s %s\n", topics[i].name, topics[i].summary);
    fputs("\n'vpmm help COMMAND' or 'vpmm help TOPIC' tells more of each.\n", file);
}

static int show_help(int argc, char **argv)
{
    if (argc > 2)
        return vpmm_cli_wrong("", "help is about one thing at a time");
    if (argc < 2) {
        show_commands(stdout);
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
        show_commands(stderr);
        return VPMM_CLI_WRONG;
    }
    if (is_help(argv[1]))
        return show_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) {
        if (argc > 2)
            return vpmm_cli_wrong("", "--version takes nothing, not '%s'", argv[2]);
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

/* A file that is opened later must not be taken for standard output because that was closed. Such a
 * descriptor can be neither read nor written, and a program that is started does not have it. */
static void fill_gaps(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", modes[fd] | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    fill_gaps();
    int status = run_command(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0)
        return vpmm_cli_fail("", "standard output cannot be written: %s", strerror(errno));
    return status;
}
