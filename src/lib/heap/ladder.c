/* SPDX-License-Identifier: MIT */
/* The order in which a request tries its rungs. Must not know what a rung does. */
#include "heap/ladder.h"

/* Who asks decides which rungs there are, and in which order. */
enum kind {
    STREAM, /* cudaMallocAsync */
    LEGACY, /* cudaMallocAsync on the legacy stream */
    MALLOC, /* cudaMalloc */
    N_KINDS
};

#define RUNGS_MAX 8

/* While memory lasts, and once it has run out. */
#define R(name) VPMM_RUNG_##name
static const struct {
    uint8_t plenty[RUNGS_MAX], shortage[RUNGS_MAX];
} ladders[N_KINDS] = {
    [STREAM] = {{R(HABIT), R(SPARE), R(SPOT), R(FOLLOW), R(GATHER), R(ASK), R(EARLY_WAIT),
                 R(CREATE)},
                {R(REAP), R(HOST_WAIT), R(DEVICE_WAIT), R(POLL), R(NEIGHBOUR)}},
    /* A wait of the legacy stream puts the blocking streams in an order that bare CUDA does not
     * give them, so it is made last, and never early. */
    [LEGACY] = {{R(HABIT), R(SPARE), R(SPOT), R(FOLLOW), R(GATHER), R(ASK), R(CREATE)},
                {R(REAP), R(HOST_WAIT), R(POLL), R(DEVICE_WAIT), R(NEIGHBOUR)}},
    [MALLOC] = {{R(HABIT), R(SETTLE), R(GATHER), R(ASK), R(SLACK), R(FREE_WAIT), R(CREATE)},
                {R(REAP), R(HOST_WAIT), R(POLL), R(NEIGHBOUR)}},
};
#undef R

#define TAKE(NAME, name, text) [VPMM_RUNG_##NAME] = vpmm_rung_##name,
static enum vpmm_status (*const takes[VPMM_RUNG_COUNT])(struct vpmm_serving *,
                                                        uint64_t *) = {VPMM_RUNG_LIST(TAKE)};
#undef TAKE

static enum kind kind_of(const struct vpmm_request *request)
{
    if (!request->stream)
        return MALLOC;
    return request->stream->is_legacy ? LEGACY : STREAM;
}

enum vpmm_status vpmm_ladder_try(struct vpmm_serving *serving, enum vpmm_rung rung,
                                 uint64_t *address_out)
{
    enum vpmm_status status = takes[rung](serving, address_out);
    if (!status) {
        serving->served.rung = rung;
        vpmm_atomic_add(&serving->heap->rungs[rung], 1);
    }
    return status;
}

/* `rungs`: RUNGS_MAX of them, or fewer and VPMM_RUNG_NONE. */
static enum vpmm_status climb(struct vpmm_serving *serving, const uint8_t *rungs,
                              uint64_t *address_out)
{
    enum vpmm_status status = VPMM_NOT_FOUND;
    for (unsigned i = 0; i < RUNGS_MAX && rungs[i] && status == VPMM_NOT_FOUND; i++)
        status = vpmm_ladder_try(serving, (enum vpmm_rung)rungs[i], address_out);
    return status;
}

enum vpmm_status vpmm_ladder_climb(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum kind kind = kind_of(serving->request);
    enum vpmm_status status = climb(serving, ladders[kind].plenty, address_out);
    if (status == VPMM_NO_MEMORY)
        status = climb(serving, ladders[kind].shortage, address_out);
    return status == VPMM_NOT_FOUND ? VPMM_NO_MEMORY : status;
}
