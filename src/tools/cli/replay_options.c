/* SPDX-License-Identifier: MIT */
/* Reads the arguments of `vpmm replay`. Must not read options from the environment: a replay has
 * those of its command line alone. */
#include "cli/cli_replay.h"

#include "base/bytes.h"
#include "cli/cli.h"
#include "config/config.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define NAME "replay"
#define NS_PER_US 1000u

const char vpmm_help_replay[] =
    "usage: vpmm replay FILE [OPTION...]\n"
    "\n"
    "Replays what a trace says was allocated and freed, and tells how much memory that\n"
    "held and what it cost. FILE is a trace of this library, CSV as docs/FORMS.md has it,\n"
    "a log of RMM or a snapshot of PyTorch, also compressed with gzip; - is standard input.\n"
    "\n"
    "  --through WHAT      pool (the default), cudaMalloc or cudaMallocAsync\n"
    "  --on WHERE          auto (the default: a GPU where there is one), gpu, gpu:N or sim, the\n"
    "                      simulated device, which has the pool only and needs no GPU\n"
    "  --compare           through all three that can be had there, beside one another\n"
    "  --passes N          through the trace, each from nothing to nothing live (2)\n"
    "  --find-limit        also find the smallest VPMM_LIMIT with which it completes\n"
    "  --min-size SIZE     smaller requests are left out (1)\n"
    "  --device N          requests of that device of the trace (that of the first one)\n"
    "  --json              figures of every pass, and memory over time, as JSON\n"
    "\n"
    "Of the pool, as the variables of these names in docs/OPTIONS.md:\n"
    "  --page-size SIZE  --extent PAGES  --slack SIZE  --spare PERCENT  --limit SIZE\n"
    "\n"
    "Of the simulated device:\n"
    "  --memory SIZE       how much it has (143771M, as an NVIDIA H200)\n"
    "  --lag-us N          queued work ends so long after each free (0: at once)\n"
    "\n"
    "Exit status: 1 where a request was refused for lack of memory.\n"
    "\n"
    "  vpmm replay train.vpmm --compare\n"
    "  vpmm replay train.vpmm --on sim --extent 1 --find-limit\n";

/* The options of the library that a replay takes, by the names of both. */
static const struct setting {
    const char *option, *variable;
} settings[] = {
    {"--page-size", "VPMM_PAGE_SIZE"}, {"--extent", "VPMM_EXTENT"}, {"--slack", "VPMM_SLACK"},
    {"--spare", "VPMM_SPARE"},         {"--limit", "VPMM_LIMIT"},
};
enum {
    SETTING_FIRST = 1000,
    SETTINGS = sizeof settings / sizeof settings[0]
};

static void take_settings(struct vpmm_replay_options *options, const char *variable,
                          const struct vpmm_config *config)
{
    if (strcmp(variable, "VPMM_PAGE_SIZE") == 0)
        options->page_bytes = config->page_bytes;
    if (strcmp(variable, "VPMM_EXTENT") == 0)
        options->extent_pages_max = config->extent_pages_max;
    if (strcmp(variable, "VPMM_SPARE") == 0)
        options->spare_percent = config->spare_percent;
    if (strcmp(variable, "VPMM_SLACK") == 0 && !config->slack_is_default) {
        options->slack_bytes = config->slack.is_percent ? 0 : config->slack.value;
        options->slack_percent = config->slack.is_percent ? config->slack.value : 0;
    }
    if (strcmp(variable, "VPMM_LIMIT") == 0) {
        options->limit_bytes = config->limit.is_percent ? 0 : config->limit.value;
        options->limit_percent = config->limit.is_percent ? config->limit.value : 0;
    }
}

/* As the library reads it from the environment. */
static int parse_setting(struct vpmm_replay_options *options, const struct setting *setting,
                         const char *value)
{
    char assignment[128];
    char *environment[] = {assignment, NULL};
    struct vpmm_config config;
    struct vpmm_complaints complaints;
    struct vpmm_option_row row;
    int length = snprintf(assignment, sizeof assignment, "%s=%s", setting->variable, value);
    vpmm_config_read(&config, &complaints, environment);
    if (*value && length < (int)sizeof assignment && complaints.n == 0) {
        take_settings(options, setting->variable, &config);
        return 0;
    }
    unsigned number = 0;
    while (vpmm_config_row(&config, number, &row) && strcmp(row.name, setting->variable) != 0)
        number++;
    return vpmm_cli_wrong_value(NAME, setting->option, value, row.accepted);
}

static int parse_size(const char *option, const char *value, uint64_t *bytes_out)
{
    if (vpmm_bytes_parse(value, bytes_out) == VPMM_OK && *bytes_out > 0)
        return 0;
    return vpmm_cli_wrong_value(NAME, option, value,
                                "a number of bytes above 0, such as 2M or 16G");
}

static int parse_count(const char *option, const char *value, uint64_t least, uint64_t most,
                       uint64_t *count_out)
{
    if (vpmm_cli_number(value, least, most, count_out))
        return 0;
    return vpmm_cli_wrong_number(NAME, option, value, least, most);
}

static int parse_place(struct vpmm_cli_replay_arguments *arguments, const char *value)
{
    uint64_t number = 0;
    bool is_numbered = strncmp(value, "gpu:", 4) == 0;
    if (strcmp(value, "auto") == 0)
        arguments->place = VPMM_CLI_REPLAY_ANYWHERE;
    else if (strcmp(value, "sim") == 0)
        arguments->place = VPMM_CLI_REPLAY_ON_SIM;
    else if (strcmp(value, "gpu") == 0 ||
             (is_numbered && vpmm_cli_number(value + 4, 0, VPMM_DEVICES_MAX - 1, &number)))
        arguments->place = VPMM_CLI_REPLAY_ON_GPU;
    else
        return vpmm_cli_wrong_value(NAME, "--on", value, "auto, gpu, gpu:N or sim");
    arguments->options.gpu = (int)number;
    return 0;
}

static int parse_through(struct vpmm_cli_replay_arguments *arguments, const char *value)
{
    arguments->has_through = true;
    for (int i = 0; i < VPMM_REPLAY_THROUGHS; i++) {
        arguments->options.through = (enum vpmm_replay_through)i;
        if (strcmp(value, vpmm_cli_replay_name(arguments->options.through)) == 0)
            return 0;
    }
    return vpmm_cli_wrong_value(NAME, "--through", value, "pool, cudaMalloc or cudaMallocAsync");
}

static int parse_option(struct vpmm_cli_replay_arguments *arguments, int option)
{
    uint64_t number = 0;
    int status = 0;
    switch (option) {
    case 't':
        return parse_through(arguments, optarg);
    case 'o':
        return parse_place(arguments, optarg);
    case 'c':
        arguments->is_comparison = true;
        return 0;
    case 'f':
        arguments->finds_limit = true;
        return 0;
    case 'j':
        arguments->is_json = true;
        return 0;
    case 'p':
        status = parse_count("--passes", optarg, 1, 1000, &number);
        arguments->options.passes = (unsigned)number;
        return status;
    case 'm':
        return parse_size("--min-size", optarg, &arguments->choice.least_bytes);
    case 'D':
        status = parse_count("--device", optarg, 0, UINT8_MAX, &number);
        arguments->choice.device = (int)number;
        return status;
    case 'd':
        return parse_size("--memory", optarg, &arguments->options.device_bytes);
    case 'l':
        status = parse_count("--lag-us", optarg, 0, UINT32_MAX, &number);
        arguments->options.lag_ns = number * NS_PER_US;
        return status;
    default:
        if (option >= SETTING_FIRST && option < SETTING_FIRST + SETTINGS)
            return parse_setting(&arguments->options, &settings[option - SETTING_FIRST], optarg);
        return -1;
    }
}

/* What is of one device or way alone. */
static void note_option(struct vpmm_cli_replay_arguments *arguments, int option, const char *name)
{
    if (option == 'd' || option == 'l')
        arguments->sim_option = name;
    else if (option >= SETTING_FIRST)
        arguments->pool_option = name;
}

static int check_together(struct vpmm_cli_replay_arguments *arguments)
{
    if (arguments->is_comparison && arguments->has_through)
        return vpmm_cli_wrong(NAME, "--compare goes through all of them: --through does not go "
                                    "with it");
    if (arguments->sim_option && arguments->place == VPMM_CLI_REPLAY_ON_GPU)
        return vpmm_cli_wrong(NAME, "--%s is of the simulated device: it takes --on sim",
                              arguments->sim_option);
    if (arguments->sim_option)
        arguments->place = VPMM_CLI_REPLAY_ON_SIM;
    if (arguments->pool_option && arguments->options.through != VPMM_REPLAY_POOL)
        return vpmm_cli_wrong(NAME, "--%s is of the pool: it takes --through pool",
                              arguments->pool_option);
    if (arguments->place == VPMM_CLI_REPLAY_ON_SIM &&
        arguments->options.through != VPMM_REPLAY_POOL)
        return vpmm_cli_wrong(NAME,
                              "the simulated device has the pool only: --through %s takes "
                              "--on gpu",
                              vpmm_cli_replay_name(arguments->options.through));
    return 0;
}

int vpmm_cli_replay_parse(int argc, char **argv, struct vpmm_cli_replay_arguments *arguments)
{
    static const struct option options[] = {
        {"through", required_argument, NULL, 't'},
        {"on", required_argument, NULL, 'o'},
        {"compare", no_argument, NULL, 'c'},
        {"find-limit", no_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},
        {"passes", required_argument, NULL, 'p'},
        {"min-size", required_argument, NULL, 'm'},
        {"device", required_argument, NULL, 'D'},
        {"memory", required_argument, NULL, 'd'},
        {"lag-us", required_argument, NULL, 'l'},
        {"page-size", required_argument, NULL, SETTING_FIRST},
        {"extent", required_argument, NULL, SETTING_FIRST + 1},
        {"slack", required_argument, NULL, SETTING_FIRST + 2},
        {"spare", required_argument, NULL, SETTING_FIRST + 3},
        {"limit", required_argument, NULL, SETTING_FIRST + 4},
        {NULL, 0, NULL, 0},
    };
    int option, index = 0;
    *arguments = (struct vpmm_cli_replay_arguments){.choice = {.least_bytes = 1, .device = -1}};
    vpmm_replay_options_init(&arguments->options);
    arguments->options.passes = 2;
    arguments->options.gpu = 0;
    while ((option = getopt_long(argc, argv, ":", options, &index)) != -1) {
        int status = parse_option(arguments, option);
        if (status)
            return status < 0 ? vpmm_cli_wrong_option(NAME, option, argv) : status;
        note_option(arguments, option, options[index].name);
    }
    if (argc - optind != 1)
        return vpmm_cli_wrong(NAME, argc == optind ? "no FILE is named"
                                                   : "one FILE at a time is replayed");
    arguments->path = argv[optind];
    return check_together(arguments);
}
