/* SPDX-License-Identifier: MIT */
/* `vpmm run`: starts a program with the library in front of it. Must not touch the program but by
 * its environment. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include "cli/library.h"
#include "cli/cli_program.h"
#include "config/config.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NAME "run"
#define CANNOT_EXECUTE 126
#define NOT_FOUND 127
#define PREFIX "VPMM_"
#define SETTINGS_MAX 64
#define NAME_ROOM 64

/* Under these PyTorch asks for each tensor; the second is what newer releases read. */
#define TORCH_VALUE "backend:cudaMallocAsync"
static const char *const torch_names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

const char vpmm_help_run[] =
    "usage: vpmm run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts PROGRAM with libvpmm.so preloaded, so that the pool serves its cudaMalloc and\n"
    "cudaMallocAsync requests. The options set variables that the library reads; what the "
    "environment\n"
    "says otherwise stays. 'vpmm help options' tells of all of them.\n"
    "\n"
    "options:\n"
    "  --page-size SIZE     the unit of accounting (VPMM_PAGE_SIZE): 2M, 1G\n"
    "  --pages N|P%         map so much in advance (VPMM_PAGES): 80%\n"
    "  --limit SIZE|P%      hold no more than that on a device (VPMM_LIMIT)\n"
    "  --stats[=json|PATH]  statistics at the end (VPMM_STATS), a table on standard error by "
    "itself\n"
    "                       where the program asked CUDA for no memory, one line says so\n"
    "  --trace FILE         record every call (VPMM_TRACE); %p in FILE is the process id\n"
    "  --free-sync          cudaFree waits, as CUDA's own does (VPMM_FREE_SYNC)\n"
    "  --only NAMES         in these programs only, separated by commas (VPMM_ONLY)\n"
    "  --torch              let PyTorch ask for every tensor: PYTORCH_CUDA_ALLOC_CONF and\n"
    "                       PYTORCH_ALLOC_CONF become backend:cudaMallocAsync, unless one is set\n"
    "  --set NAME=VALUE     any other option, with or without VPMM_: --set slack=512M\n"
    "  --library PATH       that libvpmm.so (also VPMM_LIBRARY); else the one installed with vpmm\n"
    "  -v, --verbose        say what is set, and let the library tell more (VPMM_LOG=info)\n"
    "  -h, --help           this text\n"
    "\n"
    "The exit status is PROGRAM's own; 127 if it is not found, 126 if it cannot be executed; 2 for "
    "a\n"
    "wrong option or value, of which the program hears nothing; 1 if there is no library.\n"
    "\n"
    "examples:\n"
    "  vpmm run -- python3 train.py\n"
    "  vpmm run --torch --stats -- python3 train.py\n"
    "  vpmm run --pages 80% --trace train-%p.vpmm -- ./simulate --steps 100\n";

/* What the library does, and this command does not. */
#define IGNORED " and is ignored"

/* What the command line asks for. */
struct order {
    char *settings[SETTINGS_MAX + 1]; /* "VPMM_NAME=VALUE", NULL behind the last */
    size_t n_settings;
    const char *library;
    bool is_for_torch, promises_stats, is_verbose, asks_for_help;
};

enum {
    OPTION_SETTING, /* the long option's own name is the variable's */
    OPTION_FREE_SYNC,
    OPTION_STATS,
    OPTION_SET,
    OPTION_LIBRARY,
    OPTION_TORCH,
};

static const struct option long_options[] = {
    {"page-size", required_argument, NULL, OPTION_SETTING},
    {"pages", required_argument, NULL, OPTION_SETTING},
    {"limit", required_argument, NULL, OPTION_SETTING},
    {"trace", required_argument, NULL, OPTION_SETTING},
    {"only", required_argument, NULL, OPTION_SETTING},
    {"stats", optional_argument, NULL, OPTION_STATS},
    {"free-sync", no_argument, NULL, OPTION_FREE_SYNC},
    {"set", required_argument, NULL, OPTION_SET},
    {"library", required_argument, NULL, OPTION_LIBRARY},
    {"torch", no_argument, NULL, OPTION_TORCH},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("vpmm " NAME ": ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* ---- settings ---- */

/* As the variable has it: "page-size" is VPMM_PAGE_SIZE. False: it is too long to be one. */
static bool write_name(char variable[NAME_ROOM], const char *name, size_t length)
{
    bool has_prefix = length > strlen(PREFIX) && strncasecmp(name, PREFIX, strlen(PREFIX)) == 0;
    int written =
        snprintf(variable, NAME_ROOM, "%s%.*s", has_prefix ? "" : PREFIX, (int)length, name);
    for (char *at = variable; *at; at++) {
        if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
        else if (*at == '-')
            *at = '_';
    }
    return written < NAME_ROOM;
}

/* A later one of the same name takes the place of the one before. */
static int add_setting(struct order *order, const char *name, size_t length, const char *value)
{
    char variable[NAME_ROOM];
    char *setting;
    size_t i = 0;
    if (!*value)
        return vpmm_cli_wrong(NAME, "%.*s needs a value", (int)length, name);
    if (!write_name(variable, name, length))
        return vpmm_cli_wrong(NAME, "%.*s is not an option", (int)length, name);
    size_t end = strlen(variable);
    while (i < order->n_settings &&
           (strncmp(order->settings[i], variable, end) != 0 || order->settings[i][end] != '='))
        i++;
    if (i == SETTINGS_MAX)
        return vpmm_cli_wrong(NAME, "more than %d options are set", SETTINGS_MAX);
    if (asprintf(&setting, "%s=%s", variable, value) < 0)
        return vpmm_cli_fail(NAME, "%s", strerror(errno));
    free(order->settings[i]);
    order->settings[i] = setting;
    order->n_settings += i == order->n_settings;
    return 0;
}

static int add_assignment(struct order *order, const char *assignment)
{
    size_t length = strcspn(assignment, "=");
    if (!assignment[length] || length == 0)
        return vpmm_cli_wrong(NAME, "--set takes NAME=VALUE, not '%s'", assignment);
    return add_setting(order, assignment, length, assignment + length + 1);
}

static int take_option(struct order *order, int found, const char *name, char **argv)
{
    const char *value = optarg ? optarg : "";
    if (optarg && !*value && found != OPTION_SET)
        return vpmm_cli_wrong(NAME, "--%s needs a value", name);
    switch (found) {
    case OPTION_SETTING:
        return add_setting(order, name, strlen(name), value);
    case OPTION_FREE_SYNC:
        return add_setting(order, name, strlen(name), "1");
    case OPTION_STATS:
        order->promises_stats = true;
        return add_setting(order, name, strlen(name), *value ? value : "1");
    case OPTION_SET:
        return add_assignment(order, value);
    case OPTION_LIBRARY:
        order->library = value;
        return 0;
    case OPTION_TORCH:
        order->is_for_torch = true;
        return 0;
    case 'v':
        order->is_verbose = true;
        return 0;
    case 'h':
        order->asks_for_help = true;
        return 0;
    default:
        return vpmm_cli_wrong_option(NAME, found, argv);
    }
}

/* The library reads each value in the same way, but can only warn. */
static int check_settings(const struct order *order)
{
    static struct vpmm_config config;
    static struct vpmm_complaints complaints;
    vpmm_config_read(&config, &complaints, order->settings);
    if (complaints.n == 0)
        return 0;
    char *text = complaints.text[0];
    char *advice = strstr(text, "; using the default");
    if (advice)
        *advice = 0;
    char *fate = strstr(text, IGNORED);
    if (fate)
        memmove(fate, fate + strlen(IGNORED), strlen(fate + strlen(IGNORED)) + 1);
    return vpmm_cli_wrong(NAME, "%s", text);
}

/* ---- environment ---- */

static int set(const struct order *order, const char *name, const char *value)
{
    if (order->is_verbose)
        say("%s=%s", name, value);
    return setenv(name, value, 1) == 0 ? 0 : vpmm_cli_fail(NAME, "%s", strerror(errno));
}

static int apply_settings(const struct order *order)
{
    int status = 0;
    for (size_t i = 0; i < order->n_settings && !status; i++) {
        char *setting = order->settings[i];
        char *equals = strchr(setting, '=');
        *equals = 0;
        status = set(order, setting, equals + 1);
        *equals = '=';
    }
    if (!status && order->promises_stats) {
        char number[24];
        snprintf(number, sizeof number, "%ld", (long)getpid());
        if (setenv(VPMM_STATS_OF, number, 1))
            status = vpmm_cli_fail(NAME, "%s", strerror(errno));
    }
    if (!status && order->is_verbose && !getenv("VPMM_LOG"))
        status = set(order, "VPMM_LOG", "info");
    return status;
}

/* What the user chose for PyTorch stays; so one variable keeps both from being set, because the
 * newer would override the older. */
static int apply_torch(const struct order *order)
{
    const size_t n = sizeof torch_names / sizeof *torch_names;
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        const char *chosen = getenv(torch_names[i]);
        if (!chosen)
            continue;
        if (order->is_verbose)
            say("%s=%s is left as it is", torch_names[i], chosen);
        return 0;
    }
    for (size_t i = 0; i < n && !status; i++)
        status = set(order, torch_names[i], TORCH_VALUE);
    return status;
}

static int apply_library(const struct order *order)
{
    char path[PATH_MAX];
    const char *origin = order->library ? "--library" : "VPMM_LIBRARY";
    switch (vpmm_library_find(order->library, path)) {
    case VPMM_LIBRARY_FOUND:
        break;
    case VPMM_LIBRARY_NOWHERE:
        return vpmm_cli_fail(NAME,
                             "libvpmm.so is not beside this command, and not %s; name it by "
                             "--library or VPMM_LIBRARY",
                             path);
    case VPMM_LIBRARY_NOT_THERE:
        return vpmm_cli_wrong(NAME, "%s names %s, which cannot be read", origin, path);
    case VPMM_LIBRARY_NO_ELF:
        return vpmm_cli_wrong(NAME, "%s is no shared library of this machine", path);
    case VPMM_LIBRARY_FOREIGN:
        return vpmm_cli_fail(
            NAME, "%s is not libvpmm.so, but another library: it has no " VPMM_LIBRARY_SYMBOL,
            path);
    case VPMM_LIBRARY_NO_NAME:
        return vpmm_cli_fail(
            NAME, "LD_PRELOAD cannot name %s: its path must have no space, colon or $", path);
    }
    char *value = vpmm_library_preload(path, getenv("LD_PRELOAD"));
    if (!value)
        return vpmm_cli_fail(NAME, "%s", strerror(errno));
    int status = set(order, "LD_PRELOAD", value);
    free(value);
    return status;
}

/* ---- the program ---- */

/* It runs all the same, and so may what it starts. */
static void warn_of(const char *name)
{
    char path[PATH_MAX];
    struct vpmm_program program;
    if (!vpmm_program_find(name, path))
        return;
    vpmm_program_look(path, &program);
    if (program.is_static)
        say("warning: %s is linked statically: the library does not reach it", program.path);
    if (program.is_foreign)
        say("warning: %s is for another kind of machine than the library", program.path);
    if (program.is_secure)
        say("warning: %s runs with other rights than yours: the library does not reach it",
            program.path);
}

static int execute(char **argv)
{
    warn_of(argv[0]);
    (void)execvp(argv[0], argv);
    int error = errno;
    say("%s: %s", argv[0], strerror(error));
    return error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE;
}

static int prepare(const struct order *order)
{
    int status = check_settings(order);
    if (!status)
        status = apply_settings(order);
    if (!status && order->is_for_torch)
        status = apply_torch(order);
    return status ? status : apply_library(order);
}

static int take_options(struct order *order, int argc, char **argv)
{
    int found, number = 0, status = 0;
    while (!status && (found = getopt_long(argc, argv, "+:hv", long_options, &number)) != -1)
        status = take_option(order, found, long_options[number].name, argv);
    if (!status && !order->asks_for_help && optind == argc)
        status = vpmm_cli_wrong(NAME, "which program is to run?");
    return status;
}

int vpmm_cli_run(int argc, char **argv)
{
    struct order order = {.n_settings = 0};
    int status = take_options(&order, argc, argv);
    if (!status && order.asks_for_help) {
        fputs(vpmm_help_run, stdout);
    } else {
        status = status ? status : prepare(&order);
        status = status ? status : execute(argv + optind);
    }
    for (size_t i = 0; i < order.n_settings; i++)
        free(order.settings[i]);
    return status;
}
