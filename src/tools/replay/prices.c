/* SPDX-License-Identifier: MIT */
/* What driver calls cost, by what was measured on an H200. Must not depend on the machine that it
 * runs on. */
#include "replay/prices.h"

#include <stddef.h>

#define MIB ((uint64_t)1 << 20)
#define SIZED_KINDS (VPMM_PRICE_RELEASE + 1)

/* Measured on an idle NVIDIA H200 with driver 580: host nanoseconds a handle by its size
 * (docs/DESIGN.md, "Measured ground"). A call over a range of handles costs the sum. */
static const struct size_point {
    uint64_t bytes;
    uint64_t ns[SIZED_KINDS]; /* create, map, access, unmap, release */
} sizes[] = {
    {2 * MIB, {7000, 500, 20000, 14000, 9000}},
    {16 * MIB, {7000, 500, 20000, 14000, 12000}},
    {64 * MIB, {7000, 500, 21000, 13000, 25000}},
    {256 * MIB, {9000, 500, 36000, 16000, 75000}},
    {1024 * MIB, {15000, 500, 51000, 24000, 270000}},
    {8192 * MIB, {56000, 700, 226000, 83000, 2600000}},
};
#define SIZES (sizeof sizes / sizeof sizes[0])

/* How a call's price grows with the mappings that exist: mapping 32 GiB at a second address took
 * 472, 49 and 12.7 ms in handles of 2, 16 and 64 MiB, where the list above makes 336, 42 and 11;
 * half way through, so many mappings existed. */
static const struct growth_point {
    uint64_t n_mappings, per_mille;
} growth[] = {{64, 1000}, {768, 1150}, {3072, 1170}, {24576, 1400}};
#define GROWTHS (sizeof growth / sizeof growth[0])

/* On the line through two points; `x` is not below the first one's. */
static uint64_t between(uint64_t x, uint64_t x0, uint64_t y0, uint64_t x1, uint64_t y1)
{
    double slope = ((double)y1 - (double)y0) / (double)(x1 - x0);
    return (uint64_t)((double)y0 + slope * (double)(x - x0) + 0.5);
}

static uint64_t sized_ns(enum vpmm_price_kind kind, uint64_t bytes)
{
    size_t i = 0;
    if (bytes <= sizes[0].bytes)
        return sizes[0].ns[kind];
    while (i + 2 < SIZES && bytes > sizes[i + 1].bytes)
        i++;
    return between(bytes, sizes[i].bytes, sizes[i].ns[kind], sizes[i + 1].bytes,
                   sizes[i + 1].ns[kind]);
}

static uint64_t growth_per_mille(uint64_t n_mappings)
{
    size_t i = 0;
    if (n_mappings <= growth[0].n_mappings)
        return growth[0].per_mille;
    if (n_mappings >= growth[GROWTHS - 1].n_mappings)
        return growth[GROWTHS - 1].per_mille;
    while (n_mappings > growth[i + 1].n_mappings)
        i++;
    return between(n_mappings, growth[i].n_mappings, growth[i].per_mille, growth[i + 1].n_mappings,
                   growth[i + 1].per_mille);
}

uint64_t vpmm_price_ns(enum vpmm_price_kind kind, uint64_t bytes, uint64_t n_mappings)
{
#define PRICE_NS(name, label, ns) ns,
    static const uint64_t fixed_ns[] = {VPMM_PRICE_LIST(PRICE_NS)};
#undef PRICE_NS
    if (kind < SIZED_KINDS)
        return sized_ns(kind, bytes) * growth_per_mille(n_mappings) / 1000;
    return kind < VPMM_PRICE_KINDS ? fixed_ns[kind] : 0;
}

const char *vpmm_price_name(enum vpmm_price_kind kind)
{
#define PRICE_NAME(name, label, ns) #label,
    static const char *const names[] = {VPMM_PRICE_LIST(PRICE_NAME)};
#undef PRICE_NAME
    return names[kind];
}
