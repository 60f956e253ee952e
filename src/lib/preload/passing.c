/* SPDX-License-Identifier: MIT */
/* Counts the requests of a process that has no router, and reports them at its end. Must not call
 * the driver, and must not make a router. */
#include "preload/passing.h"

#include "config/config.h"
#include "report/report.h"

/* Too large for the stack of a small thread, which may be the one that asks or ends the process. */
struct options {
    struct vpmm_config config;
    struct vpmm_complaints complaints;
};

/* NULL: no memory. */
static struct options *read_options(void)
{
    struct options *options = vpmm_memory_system.map(vpmm_memory_system.self, sizeof *options);
    if (options)
        vpmm_config_read(&options->config, &options->complaints, NULL);
    return options;
}

static void forget_options(struct options *options)
{
    vpmm_memory_system.unmap(vpmm_memory_system.self, options, sizeof *options);
}

bool vpmm_passed_by_options(void)
{
    struct options *options = read_options();
    if (!options)
        return true;
    bool passes = options->config.disable || !options->config.active;
    forget_options(options);
    return passes;
}

bool vpmm_passed_because(struct vpmm_passed *passed, enum vpmm_route reason)
{
    atomic_store(&passed->reason, reason);
    return false;
}

void vpmm_passed_forget(struct vpmm_passed *passed)
{
    atomic_store(&passed->n[0], 0);
    atomic_store(&passed->n[1], 0);
}

void vpmm_passed_report(const struct vpmm_passed *passed)
{
    struct vpmm_report_requests requests = {0};
    enum vpmm_route reason = atomic_load(&passed->reason);
    for (unsigned is_async = 0; is_async < 2; is_async++)
        requests.counts[is_async][reason] = atomic_load(&passed->n[is_async]);
    bool has_any = requests.counts[0][reason] + requests.counts[1][reason] != 0;
    /* The world that had read them is gone. */
    struct options *options = read_options();
    if (!options)
        return;
    if (options->config.stats && options->config.active &&
        (has_any || options->config.promises_stats))
        vpmm_report_stats_of(&options->config, &requests);
    forget_options(options);
}
