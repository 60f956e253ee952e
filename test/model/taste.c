/* SPDX-License-Identifier: MIT */
/* What one random program likes: how often it makes each kind of step, and what it runs under. */
#include "generate.h"

/* Each program likes some kinds of steps more than others, and does without a few. */
static void draw_weights(struct generator *generator, const struct taste *taste)
{
    static const unsigned standard[STEP_KINDS] = {
        [STEP_MALLOC] = 40,        [STEP_MALLOC_ASYNC] = 70,
        [STEP_MALLOC_POOL] = 14,   [STEP_MALLOC_PITCH] = 4,
        [STEP_FREE] = 28,          [STEP_EXCHANGE] = 5,
        [STEP_FREE_ASYNC] = 60,    [STEP_WRITE] = 80,
        [STEP_CHECK] = 30,         [STEP_COPY] = 16,
        [STEP_COPY_NOW] = 4,       [STEP_FILL] = 8,
        [STEP_TO_HOST] = 5,        [STEP_FROM_HOST] = 5,
        [STEP_RECORD] = 30,        [STEP_WAIT] = 40,
        [STEP_WAIT_FLAG] = 8,      [STEP_WRITE_FLAG] = 5,
        [STEP_CALL_FLAG] = 4,      [STEP_HOST_FLAG] = 4,
        [STEP_SYNC_STREAM] = 6,    [STEP_SYNC_EVENT] = 6,
        [STEP_SYNC_CONTEXT] = 2,   [STEP_QUERY_STREAM] = 8,
        [STEP_QUERY_EVENT] = 6,    [STEP_LOOK] = 3,
        [STEP_QUERY_BLOCK] = 4,    [STEP_CAPTURE_MODE] = 6,
        [STEP_CAPTURE_BEGIN] = 5,  [STEP_CAPTURE_END] = 8,
        [STEP_SCRATCH] = 6,        [STEP_LAUNCH] = 20,
        [STEP_GRAPH_DESTROY] = 3,  [STEP_STREAM_CREATE] = 12,
        [STEP_STREAM_DESTROY] = 3, [STEP_EVENT_DESTROY] = 3,
        [STEP_CONTEXT_CREATE] = 3, [STEP_CONTEXT_DESTROY] = 3,
        [STEP_CONTEXT_DETACH] = 3, [STEP_CONTEXT_SET] = 12,
        [STEP_PRIMARY_RETAIN] = 4, [STEP_PRIMARY_RELEASE] = 3,
        [STEP_PRIMARY_RESET] = 2,  [STEP_PEER] = 4,
        [STEP_THREAD_START] = 6,   [STEP_THREAD_END] = 1,
        [STEP_POOL_CREATE] = 3,    [STEP_POOL_DESTROY] = 1,
        [STEP_POOL_TRIM] = 2,      [STEP_POOL_USE] = 4,
        [STEP_POOL_USED] = 6,      [STEP_FREE_WRONG] = 8,
        [STEP_INFO] = 10,          [STEP_TRIM] = 2,
        [STEP_PROGRESS] = 6,
    };
    static const enum step_kind slow[] = {STEP_CONTEXT_CREATE, STEP_PRIMARY_RELEASE,
                                          STEP_PRIMARY_RESET};
    for (int i = 0; i < STEP_KINDS; i++) {
        static const unsigned tenths[] = {0, 3, 10, 10, 10, 30};
        bool is_needed = i == STEP_MALLOC_ASYNC || i == STEP_WRITE || i == STEP_FREE_ASYNC;
        uint64_t draw = is_needed ? 1 + chance_below(&generator->chance, 5)
                                  : chance_below(&generator->chance, 6);
        generator->weights[i] = standard[i] * tenths[draw];
    }
    if (!taste->detaches)
        generator->weights[STEP_CONTEXT_DETACH] = 0;
    if (!taste->setting)
        return;
    /* A real device: what takes long is rare, and what waits inside a call for another one is left
     * out. */
    generator->weights[STEP_EXCHANGE] = generator->weights[STEP_PROGRESS] = 0;
    generator->weights[STEP_PEER] = 0;
    generator->weights[STEP_POOL_USE] = generator->weights[STEP_POOL_USED] = 0;
    generator->weights[STEP_FREE_WRONG] = 0;
    for (unsigned i = 0; i < sizeof slow / sizeof *slow; i++)
        if (chance_below(&generator->chance, 12))
            generator->weights[slow[i]] = 0;
}

static void draw_setting(struct generator *generator, int extents, bool small, bool is_old)
{
    struct setting *setting = &generator->program->setting;
    static const uint64_t granules[] = {1, 1, 2, 4};
    static const uint64_t extent_pages[] = {1, 0, 1, 4, 16};
    setting->seed = 1 + chance_below(&generator->chance, 1000000);
    setting->extent_pages =
        extents >= 0 ? (uint64_t)extents : extent_pages[chance_below(&generator->chance, 5)];
    bool is_cut = setting->extent_pages != 1;
    setting->page_bytes = GRANULE * granules[chance_below(&generator->chance, is_cut ? 2 : 4)];
    setting->device_pages = (64 + 4 * chance_below(&generator->chance, 64)) * (is_cut ? 3 : 1);
    setting->slack_bytes = chance_below(&generator->chance, 2)
                               ? (uint64_t)256 << 20
                               : setting->page_bytes * chance_below(&generator->chance, 8);
    setting->eager_pages = chance_below(&generator->chance, 3)
                               ? 0
                               : chance_below(&generator->chance, setting->device_pages);
    setting->root_bytes =
        chance_below(&generator->chance, 2) ? (uint64_t)1 << 30 : setting->page_bytes;
    setting->free_waits = chance_below(&generator->chance, 8) == 0;
    setting->is_full = chance_below(&generator->chance, 6) == 0;
    setting->is_old = is_old;
    setting->serves_small = !is_old && (small || setting->seed % 4 != 0);
}

void taste_draw(struct generator *generator, const struct taste *taste)
{
    if (taste->setting)
        generator->program->setting = *taste->setting;
    else
        draw_setting(generator, taste->extents, taste->is_small, taste->is_old);
    draw_weights(generator, taste);
}
