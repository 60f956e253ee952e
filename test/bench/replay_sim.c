/* SPDX-License-Identifier: MIT */
/* replay_sim [OPTION...] TRACE (- is standard input): replays it and prints a line for each pass,
 * for reading or with --csv as a table. */
#define _POSIX_C_SOURCE 200809L
#include "replay.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define H200_BYTES (143771 * MIB)

struct arguments {
    struct replay_options replay;
    uint64_t passes, least_bytes;
    bool is_csv;
    const char *name, *path;
};

static const char usage[] =
    "usage: replay_sim [OPTION...] TRACE\n"
    "  --name NAME       in the output (TRACE)\n"
    "  --passes N        through the trace (3)\n"
    "  --extent N        at most so many pages an extent (0: the policy's choice)\n"
    "  --slack MIB       held beyond live before cudaMalloc waits (256)\n"
    "  --slack-percent N of the most ever live (2); the larger counts\n"
    "  --spare PERCENT   of the most ever live, held so that fewer extents move (18)\n"
    "  --device MIB      memory of the device (143771)\n"
    "  --least BYTES     smaller requests are left out (2097152)\n"
    "  --lag-us N        queued work ends so long after each free (0: at once)\n"
    "  --csv             a table with its head\n";

static bool parse_count(const char *text, uint64_t scale, uint64_t *count_out)
{
    char *end;
    errno = 0;
    unsigned long long count = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || count > UINT64_MAX / scale)
        return false;
    *count_out = count * scale;
    return true;
}

static bool parse_option(struct arguments *arguments, int option)
{
    switch (option) {
    case 'n':
        arguments->name = optarg;
        return true;
    case 'p':
        return parse_count(optarg, 1, &arguments->passes);
    case 'e':
        return parse_count(optarg, 1, &arguments->replay.extent_pages_max);
    case 's':
        return parse_count(optarg, MIB, &arguments->replay.slack_bytes);
    case 'S':
        return parse_count(optarg, 1, &arguments->replay.slack_percent);
    case 'q':
        return parse_count(optarg, 1, &arguments->replay.spare_percent);
    case 'd':
        return parse_count(optarg, MIB, &arguments->replay.device_bytes);
    case 'b':
        return parse_count(optarg, 1, &arguments->least_bytes);
    case 'l':
        return parse_count(optarg, 1, &arguments->replay.lag_us);
    case 'c':
        return arguments->is_csv = true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        {"name", required_argument, NULL, 'n'},
        {"passes", required_argument, NULL, 'p'},
        {"extent", required_argument, NULL, 'e'},
        {"slack", required_argument, NULL, 's'},
        {"slack-percent", required_argument, NULL, 'S'},
        {"spare", required_argument, NULL, 'q'},
        {"device", required_argument, NULL, 'd'},
        {"least", required_argument, NULL, 'b'},
        {"lag-us", required_argument, NULL, 'l'},
        {"csv", no_argument, NULL, 'c'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!parse_option(arguments, option))
            return false;
    if (argc - optind != 1)
        return false;
    arguments->path = argv[optind];
    if (!arguments->name)
        arguments->name = arguments->path;
    return true;
}

/* ---- output ---- */

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double ratio(const struct replay_pass *pass)
{
    return pass->live_peak_bytes ? (double)pass->held_peak_bytes / (double)pass->live_peak_bytes
                                 : 0;
}

static void print_head(void)
{
    printf("trace,pass,calls,refused,live_peak_bytes,held_peak_bytes,held_ratio,driver_ns,own_ns,"
           "waited_us,cache_hits,habit_hits,fits,revives,stitches,grows,host_waits,stream_waits,"
           "extents_created,extents_moved,"
           "owed_ns,last_malloc_ns,driver_p50_ns,driver_p99_ns,driver_max_ns,p50_ns,p99_ns,"
           "max_ns");
    for (int i = 0; i < PRICE_KINDS; i++)
        printf(",%s_calls,%s_handles,%s_ns", price_name((enum price_kind)i),
               price_name((enum price_kind)i), price_name((enum price_kind)i));
    putchar('\n');
}

static uint64_t extents_moved(const struct replay_pass *pass)
{
    return pass->tally.calls[PRICE_MAP] - pass->tally.calls[PRICE_CREATE];
}

static void print_row(const char *name, unsigned number, const struct replay_pass *pass)
{
    const struct vpmm_heap_counts *counts = &pass->counts;
    const struct priced_tally *tally = &pass->tally;
    printf("%s,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.4f,%" PRIu64 ",%" PRIu64
           ",%" PRIu64,
           name, number, pass->calls, pass->refused, pass->live_peak_bytes, pass->held_peak_bytes,
           ratio(pass), pass->driver_ns, pass->own_ns, pass->waited_us);
    printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
           ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
           counts->cache_hits, counts->habit_hits, counts->fits, counts->revives, counts->stitches,
           counts->grows, counts->host_waits, counts->stream_waits, tally->calls[PRICE_CREATE],
           extents_moved(pass));
    printf(",%" PRIu64 ",%" PRIu64, pass->owed_ns, pass->last_malloc_ns);
    printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
           pass->modelled.p50_ns, pass->modelled.p99_ns, pass->modelled.max_ns, pass->whole.p50_ns,
           pass->whole.p99_ns, pass->whole.max_ns);
    for (int i = 0; i < PRICE_KINDS; i++)
        printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64, tally->calls[i], tally->handles[i],
               tally->ns[i]);
    putchar('\n');
}

static void print_line(const char *name, unsigned number, const struct replay_pass *pass)
{
    const struct vpmm_heap_counts *counts = &pass->counts;
    const struct priced_tally *tally = &pass->tally;
    printf("%s, pass %u: %" PRIu64 " calls, %" PRIu64 " refused; live peak %.3f GB, held %.3f GB "
           "(%.3f); driver %.3f ms + own %.3f ms = %.3f ms, waited %.3f ms; cache hits %" PRIu64
           ", habit hits %" PRIu64 ", fits %" PRIu64 ", revives %" PRIu64 ", stitches %" PRIu64
           ", grows %" PRIu64 "; extents created %" PRIu64 ", moved %" PRIu64
           ", unmaps owed %.3f ms; a call p50 %.2f, p99 %.2f, max %.2f us; driver calls",
           name, number, pass->calls, pass->refused, (double)pass->live_peak_bytes / 1e9,
           (double)pass->held_peak_bytes / 1e9, ratio(pass), ms(pass->driver_ns), ms(pass->own_ns),
           ms(pass->driver_ns + pass->own_ns), (double)pass->waited_us / 1e3, counts->cache_hits,
           counts->habit_hits, counts->fits, counts->revives, counts->stitches, counts->grows,
           tally->calls[PRICE_CREATE], extents_moved(pass), ms(pass->owed_ns),
           (double)pass->whole.p50_ns / 1e3, (double)pass->whole.p99_ns / 1e3,
           (double)pass->whole.max_ns / 1e3);
    for (int i = 0; i < PRICE_KINDS; i++)
        if (tally->calls[i])
            printf(" %s %" PRIu64, price_name((enum price_kind)i), tally->calls[i]);
    putchar('\n');
}

static int replay_all(const struct arguments *arguments, const struct trace *trace)
{
    static struct replay replay;
    struct replay_pass pass;
    replay_setup(&replay, trace, &arguments->replay);
    if (arguments->is_csv)
        print_head();
    for (unsigned i = 1; i <= arguments->passes; i++) {
        replay_run(&replay, &pass);
        (arguments->is_csv ? print_row : print_line)(arguments->name, i, &pass);
        (void)fflush(stdout);
    }
    return replay_teardown(&replay) ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct trace trace;
    struct arguments arguments = {
        .passes = 3,
        .least_bytes = 2 * MIB,
        .replay = {.slack_bytes = 256 * MIB,
                   .slack_percent = 2,
                   .spare_percent = 18,
                   .device_bytes = H200_BYTES},
    };
    if (!parse(argc, argv, &arguments)) {
        fputs(usage, stderr);
        return 2;
    }
    bool is_stdin = strcmp(arguments.path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(arguments.path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", arguments.path, strerror(errno));
        return 2;
    }
    bool is_read = trace_read(file, arguments.name, arguments.least_bytes, &trace);
    if (!is_stdin)
        (void)fclose(file);
    if (!is_read)
        return 2;
    int status = replay_all(&arguments, &trace);
    trace_finish(&trace);
    return status;
}
