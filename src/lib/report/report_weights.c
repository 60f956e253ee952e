/* SPDX-License-Identifier: MIT */
/* The figures of weights larger than their budget, as rows. Runs while the process ends and from
 * outside, so it must not wait for a lock or call the driver. */
#include "report/report_internal.h"

#include <string.h>

static void fill(const struct vpmm_offload_stats *stats, struct vpmm_stats_row *rows)
{
    uint64_t uses = stats->hits + stats->misses;
    const struct vpmm_stats_row all[VPMM_WEIGHT_FIGURES] = {
        {"weight_bytes", "weights", stats->weight_bytes, true, 0},
        {"budget_bytes", "budget", stats->budget_bytes, true, 0},
        {"held_bytes", "held", stats->held_bytes, true, 0},
        {"held_peak_bytes", "held peak", stats->held_peak_bytes, true, 0},
        {"resident_bytes", "resident", stats->resident_bytes, true, stats->weight_bytes},
        {"ring_bytes", "ring", stats->ring_bytes, true, 0},
        {"direct_bytes", "direct (windows over host memory)", stats->direct_bytes, true, 0},
        {"promoted_bytes", "promoted (direct, on the device)", stats->promoted_bytes, true, 0},
        {"host_bytes", "host memory pinned", stats->host_bytes, true, 0},
        {"passes", "passes", stats->passes, false, 0},
        {"captured_passes", "captured passes", stats->captured_passes, false, 0},
        {"hits", "hits (uses of bytes that were there)", stats->hits, false, uses},
        {"misses", "misses (uses of bytes that were copied)", stats->misses, false, uses},
        {"late", "late (not there when the host asked)", stats->late, false, stats->misses},
        {"evictions", "evictions", stats->evictions, false, 0},
        {"divergences", "divergences (uses out of order)", stats->divergences, false, 0},
        {"copied_bytes", "copied", stats->copied_bytes, true, 0},
        {"staged_bytes", "staged (copied through buffers)", stats->staged_bytes, true, 0},
        {"host_waits", "waits on the host", stats->host_waits, false, 0},
        {"host_wait_ns", "waited on the host, ns", stats->host_wait_ns, false, 0},
        {"yields", "yields (memory that the program lacked)", stats->yields, false, 0},
        {"vmm_calls", "calls that took, gave back or mapped memory", stats->vmm_calls, false, 0},
        {"promotions", "promotions", stats->promotions, false, 0},
        {"demotions", "demotions", stats->demotions, false, 0},
        {"timed_passes", "timed passes", stats->timed_passes, false, stats->passes},
        {"pass_ns", "time of those, ns", stats->pass_ns, false, 0},
        {"stall_ns", "of that, waited for copies, ns", stats->stall_ns, false, stats->pass_ns},
        {"bound_ns", "bound: those copies at the link's rate, ns", stats->bound_ns, false,
         stats->pass_ns},
        {"link_bytes_per_s", "rate of the link, in a second", stats->link_bytes_per_s, true, 0},
    };
    memcpy(rows, all, sizeof all);
}

void vpmm_report_weights(const struct vpmm_router *router, struct vpmm_report_weights *weights_out)
{
    struct vpmm_offload_stats stats;
    int device;
    weights_out->n = 0;
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX; i++) {
        unsigned n = weights_out->n;
        if (!vpmm_router_offload_stats(router, i, &device, &stats))
            continue;
        fill(&stats, weights_out->rows[n]);
        weights_out->groups[n] = (struct vpmm_stats_group){
            NULL, device, weights_out->rows[n], VPMM_WEIGHT_FIGURES, NULL, 0};
        weights_out->n++;
    }
}

bool vpmm_report_has_weights(const struct vpmm_router *router)
{
    struct vpmm_offload_stats stats;
    int device;
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX; i++)
        if (vpmm_router_offload_stats(router, i, &device, &stats))
            return true;
    return false;
}

/* The next object that lives, from `*place` on. */
static bool next_alive(const struct vpmm_router *router, uint32_t *place,
                       struct vpmm_report_offload *offload_out)
{
    while (router && *place < VPMM_OFFLOADS_MAX) {
        uint32_t i = (*place)++;
        if (vpmm_router_offload_is_alive(router, i) &&
            vpmm_router_offload_stats(router, i, &offload_out->device, &offload_out->stats))
            return true;
    }
    return false;
}

unsigned vpmm_report_offloads(const struct vpmm_router *router,
                              struct vpmm_report_offload offloads_out[VPMM_OFFLOADS_MAX])
{
    unsigned n = 0;
    uint32_t place = 0;
    while (next_alive(router, &place, &offloads_out[n]))
        n++;
    return n;
}

static bool is_of(const struct vpmm_report_offload *offload, int device)
{
    return device == VPMM_REPORT_ALL_DEVICES || offload->device == device;
}

unsigned vpmm_report_dump_weights(const struct vpmm_router *router, int device,
                                  struct vpmm_dump_weights *weights_out, unsigned room)
{
    struct vpmm_report_offload offload;
    unsigned n = 0;
    for (uint32_t place = 0; n < room && next_alive(router, &place, &offload);) {
        const struct vpmm_offload_stats *stats = &offload.stats;
        if (is_of(&offload, device))
            weights_out[n++] = (struct vpmm_dump_weights){
                .device = offload.device,
                .weight_bytes = stats->weight_bytes,
                .budget_bytes = stats->budget_bytes,
                .held_bytes = stats->held_bytes,
                .resident_bytes = stats->resident_bytes,
                .ring_bytes = stats->ring_bytes,
                .direct_bytes = stats->direct_bytes,
                .copied_bytes = stats->copied_bytes,
                .hits = stats->hits,
                .misses = stats->misses,
                .pass_ns = stats->pass_ns,
                .stall_ns = stats->stall_ns,
                .bound_ns = stats->bound_ns,
            };
    }
    return n;
}
