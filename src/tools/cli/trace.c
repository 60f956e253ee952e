/* SPDX-License-Identifier: MIT */
/* `vpmm trace`: what its subcommands are, and convert. Must not leave an unfinished file behind. */
#define _POSIX_C_SOURCE 200809L
#include "cli/trace.h"

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/traces.h"
#include "base/bytes.h"
#include "trace/writer.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FORMS "vpmm, csv, rmm, snapshot or chrome"
#define FORMS_READ "vpmm, csv, rmm or snapshot"

const char vpmm_help_trace[] =
    "usage: vpmm trace summary FILE [--json] [--device N] [--from FORM]\n"
    "       vpmm trace convert FILE -o OUT [--from FORM] [--to FORM] [--device N]\n"
    "                          [--min-size SIZE]\n"
    "\n"
    "summary tells the peaks of a trace and what was live at them, sizes, lifetimes,\n"
    "how much was held without use over time, how requests were served, the slowest\n"
    "calls, and what was never freed. convert writes a trace in another form.\n"
    "\n"
    "FILE and OUT may be - for standard input and output. Forms, and the endings of\n"
    "names that stand for them:\n"
    "\n"
    "  vpmm      .vpmm .trace   this library's own, of VPMM_TRACE\n"
    "  csv       .csv           A,ADDRESS,BYTES,STREAM,US,KIND and so on\n"
    "  rmm       .log .rmm      the log of RMM's logging_resource_adaptor\n"
    "  snapshot  .pickle .pkl   PyTorch's memory snapshot, for memory_viz\n"
    "  chrome    .json          for Perfetto and chrome://tracing; written only\n"
    "\n"
    "A file that is read tells its form itself, and may be compressed with gzip; one\n"
    "that is written is compressed if its name ends in .gz.\n"
    "\n"
    "  -o, --out OUT     what to write\n"
    "  --from FORM       of FILE, where it does not tell\n"
    "  --to FORM         of OUT, where its name does not tell\n"
    "  --device N        of this device alone\n"
    "  --min-size SIZE   leave requests of less than SIZE out\n"
    "  --json            the figures as one JSON object\n"
    "\n"
    "  vpmm trace summary train.vpmm\n"
    "  vpmm trace convert train.vpmm -o train.json.gz --min-size 2M\n"
    "  vpmm trace convert snapshot.pickle -o snapshot.csv\n";

struct conversion {
    const char *from_path, *to_path;
    enum vpmm_trace_form from, to;
    int device; /* -1: all */
    uint64_t min_bytes;
};

int vpmm_cli_trace_from(const char *text, enum vpmm_trace_form *form_out)
{
    *form_out = vpmm_trace_form_named(text);
    if (*form_out == VPMM_TRACE_FORM_UNKNOWN || *form_out == VPMM_TRACE_FORM_CHROME)
        return vpmm_cli_wrong_value("trace", "--from", text, FORMS_READ);
    return 0;
}

static int read_to(const char *text, enum vpmm_trace_form *form_out)
{
    *form_out = vpmm_trace_form_named(text);
    if (*form_out == VPMM_TRACE_FORM_UNKNOWN)
        return vpmm_cli_wrong_value("trace", "--to", text, FORMS);
    return 0;
}

int vpmm_cli_trace_device(const char *text, int *device_out)
{
    uint64_t number;
    if (!vpmm_cli_number(text, 0, UINT8_MAX, &number))
        return vpmm_cli_wrong_number("trace", "--device", text, 0, UINT8_MAX);
    *device_out = (int)number;
    return 0;
}

static bool is_wanted(const struct conversion *conversion, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    if (conversion->device >= 0 && entry->device != conversion->device)
        return false;
    return (entry->kind != VPMM_TRACE_MALLOC && entry->kind != VPMM_TRACE_FREE) ||
           entry->bytes >= conversion->min_bytes;
}

static void tell_left_out(const struct vpmm_trace_left_out *left_out, enum vpmm_trace_form form)
{
    const struct {
        uint64_t n;
        const char *what;
    } parts[] = {{left_out->queued, "kernels and events"},
                 {left_out->failed, "calls that failed"},
                 {left_out->pool, "entries about the pool"},
                 {left_out->unknown, "frees of blocks from before"}};
    const char *separator = "vpmm trace: left out, for which there is no place in ";
    const char *name = vpmm_trace_form_name(form), *colon = ": ";
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].n == 0)
            continue;
        fprintf(stderr, "%s%s%s%llu %s", separator, name, colon, (unsigned long long)parts[i].n,
                parts[i].what);
        separator = ", ";
        name = colon = "";
    }
    if (*separator == ',')
        fputc('\n', stderr);
}

/* `freed` was made up because of the malloc behind it. Where that malloc is left out, nothing else
 * tells a reader of the free, so it is written as one that was recorded. */
static bool put_made_up(const struct conversion *conversion, struct vpmm_trace_writer *writer,
                        struct vpmm_trace_item *freed, bool is_malloc_put)
{
    freed->is_made_up = is_malloc_put;
    return !is_wanted(conversion, freed) || vpmm_trace_put(writer, freed);
}

/* 0, or the exit status after one line. */
static int copy_items(const struct conversion *conversion, struct vpmm_trace_reader *reader,
                      struct vpmm_trace_writer *writer)
{
    struct vpmm_progress progress;
    struct vpmm_trace_item item, freed;
    bool is_written = true, is_any = false, has_freed = false;
    vpmm_progress_begin(&progress, "converting");
    while (is_written && vpmm_cli_trace_next(reader, &progress, &item)) {
        if (item.is_made_up) {
            freed = item;
            has_freed = true;
            continue;
        }
        bool is_put = is_wanted(conversion, &item);
        if (has_freed)
            is_written = put_made_up(conversion, writer, &freed, is_put);
        has_freed = false;
        is_any |= is_put;
        is_written = is_written && (!is_put || vpmm_trace_put(writer, &item));
    }
    vpmm_progress_end(&progress);
    int status = is_written ? vpmm_cli_trace_check("trace", reader) : 0;
    if (!status && conversion->device >= 0 && !is_any)
        status = vpmm_cli_fail("trace", "%s: there is nothing of device %d", conversion->from_path,
                               conversion->device);
    return status;
}

/* The name under which what is written lies until it is whole. */
static char unfinished[VPMM_TRACE_PATH_ROOM];

static void remove_unfinished(int number)
{
    (void)unlink(unfinished);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
#define NUMBERS (sizeof numbers / sizeof numbers[0])

/* Until the name is known, they wait. */
static void hold_signals(sigset_t *before_out)
{
    sigset_t held;
    (void)sigemptyset(&held);
    for (size_t i = 0; i < NUMBERS; i++)
        (void)sigaddset(&held, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &held, before_out);
}

static void watch_signals(void)
{
    if (!unfinished[0])
        return;
    for (size_t i = 0; i < NUMBERS; i++) {
        if (signal(numbers[i], remove_unfinished) == SIG_IGN)
            (void)signal(numbers[i], SIG_IGN);
    }
}

static int convert(const struct conversion *conversion, struct vpmm_trace_reader *reader)
{
    char message[256];
    struct vpmm_trace_writer *writer;
    sigset_t before;
    const struct vpmm_trace_facts facts = vpmm_trace_reader_facts(reader);
    hold_signals(&before);
    if (vpmm_trace_create(conversion->to_path, conversion->to, &facts, &writer, message))
        return vpmm_cli_fail("trace", "%s", message);
    (void)snprintf(unfinished, sizeof unfinished, "%s", vpmm_trace_unfinished(writer));
    watch_signals();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    int status = copy_items(conversion, reader, writer);
    if (status) {
        vpmm_trace_abandon(writer);
        return status;
    }
    const struct vpmm_trace_left_out left_out = vpmm_trace_left_out(writer);
    if (vpmm_trace_finish(writer, message))
        return vpmm_cli_fail("trace", "%s", message);
    tell_left_out(&left_out, conversion->to);
    return 0;
}

static int open_and_convert(struct conversion *conversion)
{
    struct vpmm_trace_reader *reader;
    if (!conversion->to_path)
        return vpmm_cli_wrong("trace", "convert needs -o OUT");
    if (conversion->to == VPMM_TRACE_FORM_UNKNOWN)
        conversion->to = vpmm_trace_form_of_name(conversion->to_path);
    if (conversion->to == VPMM_TRACE_FORM_UNKNOWN)
        return vpmm_cli_wrong("trace", "the name of '%s' tells no form: --to " FORMS,
                              conversion->to_path);
    bool is_text =
        conversion->to != VPMM_TRACE_FORM_VPMM && conversion->to != VPMM_TRACE_FORM_SNAPSHOT;
    if (strcmp(conversion->to_path, "-") == 0 && !is_text && isatty(STDOUT_FILENO))
        return vpmm_cli_wrong("trace", "standard output is a terminal, and %s is not text",
                              vpmm_trace_form_name(conversion->to));
    int status = vpmm_cli_trace_open("trace", conversion->from_path, conversion->from, &reader);
    if (status == 0) {
        status = convert(conversion, reader);
        vpmm_trace_close(reader);
    }
    return status;
}

static int take_option(struct conversion *conversion, int found, char *const *argv)
{
    switch (found) {
    case 'o':
        conversion->to_path = optarg;
        return 0;
    case 'f':
        return vpmm_cli_trace_from(optarg, &conversion->from);
    case 't':
        return read_to(optarg, &conversion->to);
    case 'd':
        return vpmm_cli_trace_device(optarg, &conversion->device);
    case 'l':
        if (vpmm_bytes_parse(optarg, &conversion->min_bytes) == VPMM_OK)
            return 0;
        return vpmm_cli_wrong_value("trace", "--min-size", optarg,
                                    "a number of bytes, such as 4096 or 2M");
    default:
        return vpmm_cli_wrong_option("trace", found, argv);
    }
}

static int run_convert(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},      {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 't'},       {"device", required_argument, NULL, 'd'},
        {"min-size", required_argument, NULL, 'l'}, {NULL, 0, NULL, 0}};
    struct conversion conversion = {.device = -1};
    int found;
    while ((found = getopt_long(argc, argv, ":o:", options, NULL)) != -1) {
        int status = take_option(&conversion, found, argv);
        if (status)
            return status;
    }
    if (argc - optind != 1)
        return vpmm_cli_wrong("trace",
                              argc == optind ? "convert needs a FILE"
                                             : "convert takes one FILE, not also '%s'",
                              argv[argc - 1]);
    conversion.from_path = argv[optind];
    return open_and_convert(&conversion);
}

static bool wants_help(int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

int vpmm_cli_trace(int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        fputs(vpmm_help_trace, stdout);
        return 0;
    }
    if (argc < 2)
        return vpmm_cli_wrong("trace", "what is to be done: summary or convert");
    if (strcmp(argv[1], "summary") == 0)
        return vpmm_cli_trace_summary(argc - 1, argv + 1);
    if (strcmp(argv[1], "convert") == 0)
        return run_convert(argc - 1, argv + 1);
    return vpmm_cli_wrong("trace", "'%s' is neither summary nor convert", argv[1]);
}
