/* SPDX-License-Identifier: MIT */
/* Scenes of a device that is full, or would be without a wait: on the host, on the device, and the
 * whole ladder. */
#include "rig.h"

/* Fewer than elsewhere: most of them are written again and again. */
#define DEVICE_PAGES 40

static void small_device(struct fixture_params *params)
{
    params->sim.device_bytes = DEVICE_PAGES * params->heap.page_bytes;
}

/* Completes one piece of work for every look at an event that is not complete. */
static void moving(struct fixture_params *params)
{
    small_device(params);
    params->sim.query_progress = 1;
}

static void no_slack(struct fixture_params *params)
{
    params->heap.slack_bytes = 0;
    params->heap.slack_percent = 0;
}

/* cudaMalloc waits for what cudaFree recorded, instead of growing. */
static void host_wait(struct rig *rig)
{
    int p = rig_malloc(rig, 6, NULL);
    int q = rig_malloc(rig, 3, NULL);
    rig_free(rig, p, NULL);
    rig_free(rig, q, NULL);
    (void)rig_malloc(rig, 8, NULL);
}

/* cudaMallocAsync lets its stream wait for pages of two others, on a device that is full. */
static void device_wait(struct rig *rig)
{
    int p = rig_malloc(rig, 18, rig->b);
    int q = rig_malloc(rig, 16, rig->blocking);
    rig_free(rig, p, rig->b);
    rig_free(rig, q, rig->blocking);
    int r = rig_malloc(rig, 38, rig->a);
    rig_use(rig, r, rig->a);
}

/* The full device as cudaMalloc meets it: zombies, pending frees of both kinds. */
static void ladder(struct rig *rig)
{
    int p = rig_malloc(rig, 9, rig->a);
    int kept = rig_malloc(rig, 1, NULL);
    int q = rig_malloc(rig, 9, rig->a);
    rig_free(rig, p, rig->a);
    rig_free(rig, q, rig->a);
    int r = rig_malloc(rig, 19, rig->a);
    int s = rig_malloc(rig, 16, NULL);
    rig_free(rig, r, rig->a);
    rig_free(rig, s, NULL);
    (void)rig_malloc(rig, 38, NULL);
    rig_use(rig, kept, rig->b);
}

/* No ladder is long enough: the refusal leaves all as it was. */
static void refused(struct rig *rig)
{
    struct picture before;
    if (rig_malloc(rig, 30, rig->a) == NO_BLOCK)
        return;
    picture_take(&rig->f, &before);
    rig_refuse(rig, DEVICE_PAGES - 20, rig->a);
    rig_refuse(rig, DEVICE_PAGES - 20, NULL);
    if (!rig_strikes(rig))
        picture_compare(&rig->f, &before);
    (void)rig_malloc(rig, 8, NULL);
}

const struct scene scenes[] = {
    {"host-wait", no_slack, host_wait, false},
    {"device-wait", small_device, device_wait, true},
    {"ladder", moving, ladder, true},
    {"refused", small_device, refused, true},
    {NULL, NULL, NULL, false},
};
