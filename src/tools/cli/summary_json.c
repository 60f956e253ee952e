/* SPDX-License-Identifier: MIT */
/* Prints a summary as JSON. Must not print anything but one object. */
#include "cli/quoted.h"
#include "cli/summary.h"

#include <stdio.h>

static void print_number(const char *key, uint64_t number)
{
    printf(", \"%s\": %llu", key, (unsigned long long)number);
}

static void print_peak(const char *key, const struct vpmm_summary_peak *peak)
{
    printf(", \"%s\": {\"bytes\": %llu", key, (unsigned long long)peak->bytes);
    print_number("at_ns", peak->at_ns);
    print_number("blocks", peak->n_blocks);
    putchar('}');
}

static void print_groups(const char *key, const char *unit, const struct vpmm_summary_group *groups,
                         unsigned n)
{
    printf(", \"%s\": [", key);
    for (unsigned i = 0; i < n; i++) {
        printf("%s{\"%s\": %llu", i ? ", " : "", unit, (unsigned long long)groups[i].key);
        print_number("blocks", groups[i].n);
        print_number("bytes", groups[i].bytes);
        putchar('}');
    }
    putchar(']');
}

static void print_blocks(const char *key, const struct vpmm_summary_blocks *blocks)
{
    printf(",\n \"%s\": {\"blocks\": %llu", key, (unsigned long long)blocks->all.n);
    print_number("bytes", blocks->all.bytes);
    print_groups("sizes", "size_bytes", blocks->sizes, blocks->n_sizes);
    print_groups("streams", "stream", blocks->streams, blocks->n_streams);
    print_groups("threads", "thread", blocks->threads, blocks->n_threads);
    putchar('}');
}

static void print_times(const char *key, const struct vpmm_summary_times *times)
{
    printf(",\n \"%s\": {\"calls\": %llu", key, (unsigned long long)times->n);
    print_number("total_ns", times->total_ns);
    print_number("p50_ns", vpmm_summary_quantile(times, 500));
    print_number("p99_ns", vpmm_summary_quantile(times, 990));
    print_number("max_ns", times->max_ns);
    putchar('}');
}

static void print_facts(const struct vpmm_summary *summary, const struct vpmm_trace_facts *facts,
                        const char *name)
{
    printf("{\"vpmm_trace_summary\": 1, \"file\": ");
    vpmm_cli_print_quoted(name);
    printf(", \"program\": ");
    vpmm_cli_print_quoted(facts->program);
    print_number("pid", facts->pid);
    print_number("start_unix_ns", facts->start_unix_ns);
    printf(", \"is_ended\": %s", facts->is_ended ? "true" : "false");
    print_number("first_ns", summary->first_ns);
    print_number("last_ns", summary->last_ns);
    print_number("mallocs", summary->n_mallocs);
    print_number("frees", summary->n_frees);
    print_number("failed", summary->n_failed);
    print_number("dropped", facts->dropped);
    print_number("frees_missing", summary->n_made_up);
    print_number("frees_unknown", summary->n_unknown);
    print_number("kernels", summary->n_kernels);
    print_number("events", summary->n_events);
}

static void print_devices(const struct vpmm_summary *summary)
{
    const char *separator = "";
    print_peak("live_peak", &summary->all.live);
    if (summary->all.has_held)
        print_peak("held_peak", &summary->all.held);
    printf(",\n \"devices\": [");
    for (unsigned i = 0; i < VPMM_SUMMARY_DEVICES; i++) {
        const struct vpmm_summary_device *device = &summary->devices[i];
        if (!device->is_used)
            continue;
        printf("%s{\"device\": %u", separator, i);
        print_peak("live_peak", &device->live);
        if (device->has_held)
            print_peak("held_peak", &device->held);
        putchar('}');
        separator = ", ";
    }
    putchar(']');
}

static void print_counts(const char *key, const char *unit, const struct vpmm_summary_count *counts,
                         unsigned n, const uint64_t *from)
{
    const char *separator = "";
    printf(",\n \"%s\": [", key);
    for (unsigned i = 0; i < n; i++) {
        if (counts[i].n == 0)
            continue;
        printf("%s{\"%s\": %llu", separator, unit, (unsigned long long)from[i]);
        print_number("blocks", counts[i].n);
        print_number("bytes", counts[i].bytes);
        putchar('}');
        separator = ", ";
    }
    putchar(']');
}

static void print_histograms(const struct vpmm_summary *summary)
{
    uint64_t sizes[VPMM_SUMMARY_SIZES], lives[VPMM_SUMMARY_LIVES] = {0, 1000};
    for (unsigned i = 0; i < VPMM_SUMMARY_SIZES; i++)
        sizes[i] = (uint64_t)1 << i;
    for (unsigned i = 2; i < VPMM_SUMMARY_LIVES; i++)
        lives[i] = lives[i - 1] * 10;
    sizes[0] = 0;
    print_counts("sizes", "from_bytes", summary->sizes, VPMM_SUMMARY_SIZES, sizes);
    print_counts("lifetimes", "from_ns", summary->lives, VPMM_SUMMARY_LIVES, lives);
}

static void print_spans(const struct vpmm_summary *summary)
{
    unsigned n = vpmm_summary_n_spans(summary);
    printf(",\n \"over_time\": [");
    for (unsigned i = 0; i < n; i++) {
        const struct vpmm_summary_span *span = &summary->spans[i];
        unsigned long long from_ns = summary->first_ns + i * summary->span_ns;
        printf("%s{\"from_ns\": %llu", i ? ", " : "", from_ns);
        print_number("live_bytes", span->live_bytes);
        if (summary->all.has_held) {
            print_number("held_bytes", span->held_bytes);
            print_number("unused_bytes", span->unused_bytes);
        }
        putchar('}');
    }
    putchar(']');
}

static void print_paths(const struct vpmm_summary *summary)
{
    const char *separator = "";
    char room[64];
    printf(",\n \"paths\": [");
    for (unsigned i = 0; i < VPMM_SUMMARY_PATHS; i++) {
        const struct vpmm_summary_path *path = &summary->paths[i];
        if (path->count.n == 0)
            continue;
        printf("%s{\"path\": %u, \"text\": ", separator, i);
        vpmm_cli_print_quoted(vpmm_summary_path_text(i, room));
        print_number("mallocs", path->count.n);
        print_number("bytes", path->count.bytes);
        print_number("p50_ns", vpmm_summary_quantile(&path->times, 500));
        print_number("p99_ns", vpmm_summary_quantile(&path->times, 990));
        print_number("max_ns", path->times.max_ns);
        putchar('}');
        separator = ", ";
    }
    putchar(']');
}

static void print_slowest(const struct vpmm_summary *summary)
{
    char room[64];
    printf(",\n \"slowest\": [");
    for (unsigned i = 0; i < summary->n_slowest; i++) {
        const struct vpmm_trace_entry *entry = &summary->slowest[i].entry;
        printf("%s{\"call\": \"%s\"", i ? ", " : "", vpmm_summary_call_text(entry));
        print_number("at_ns", entry->ns);
        print_number("duration_ns", entry->duration_ns);
        print_number("thread", summary->slowest[i].thread);
        print_number("bytes", entry->bytes);
        print_number("device", entry->device);
        print_number("stream", entry->stream);
        printf(", \"path\": ");
        vpmm_cli_print_quoted(vpmm_summary_path_text(entry->path, room));
        putchar('}');
    }
    putchar(']');
}

static void print_pool(const struct vpmm_summary *summary)
{
    static const char *const words[] = {"grow", "stitch", "unmap", "release"};
    printf(",\n \"pool\": {");
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        const struct vpmm_summary_count *count = &summary->pool[VPMM_TRACE_GROW + i];
        printf("%s\"%s\": {\"times\": %llu", i ? ", " : "", words[i], (unsigned long long)count->n);
        print_number("bytes", count->bytes);
        putchar('}');
    }
    putchar('}');
}

static void print_weights(const struct vpmm_summary *summary)
{
    static const char *const words[] = {"load", "evict", "pass"};
    printf(",\n \"weights\": {");
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        const struct vpmm_summary_count *count = &summary->pool[VPMM_TRACE_WEIGHTS_LOAD + i];
        printf("%s\"%s\": {\"times\": %llu", i ? ", " : "", words[i], (unsigned long long)count->n);
        print_number("bytes", count->bytes);
        putchar('}');
    }
    putchar('}');
}

void vpmm_summary_print_json(const struct vpmm_summary *summary,
                             const struct vpmm_trace_facts *facts, const char *name)
{
    print_facts(summary, facts, name);
    print_devices(summary);
    print_blocks("at_peak", &summary->at_peak);
    print_spans(summary);
    print_histograms(summary);
    print_times("malloc_calls", &summary->mallocs);
    print_times("free_calls", &summary->frees);
    print_times("host_waits", &summary->host_waits);
    print_times("stream_waits", &summary->stream_waits);
    print_paths(summary);
    print_pool(summary);
    if (summary->pool[VPMM_TRACE_WEIGHTS_PASS].n || summary->pool[VPMM_TRACE_WEIGHTS_LOAD].n)
        print_weights(summary);
    print_slowest(summary);
    print_blocks("at_end", &summary->at_end);
    puts("}");
}
