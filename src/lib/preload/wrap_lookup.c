/* SPDX-License-Identifier: MIT */
/* The wrappers of cuGetProcAddress: put our wrapper in the place of a driver function that we wrap.
 * Must not put it there unless the driver has found its own function. */
#include "preload/wrap_lookup.h"

#include "preload/original.h"

#include <stdint.h>
#include <string.h>

static const struct vpmm_api_row rows[VPMM_API_WRAPPED] = {
#define IS_PLAIN false
#define IS_PTSZ true
#define VPMM_API(name, base, version, spelling, parameters)                                        \
    [VPMM_API_##name] = {#name, #base, version, IS_##spelling, (vpmm_code *)vpmm_wrap_##name},
#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    [VPMM_API_##name] = {#name, #base, version, IS_##spelling, (vpmm_code *)vpmm_wrap_##name},
#include "preload/api.def"
};

const struct vpmm_api_row *vpmm_api_row(enum vpmm_api api)
{
    return &rows[api];
}

enum vpmm_api vpmm_api_by_name(const char *name)
{
    if (name[0] != 'c' || name[1] != 'u')
        return VPMM_API_COUNT;
    for (int i = 0; i < VPMM_API_WRAPPED; i++) {
        if (strcmp(name, rows[i].name) == 0)
            return (enum vpmm_api)i;
    }
    return VPMM_API_COUNT;
}

/* The function that cuGetProcAddress is bound to give for these arguments according to the list
 * alone: the newest ABI not newer than `version`, in the spelling that `flags` ask for where there
 * is one. VPMM_API_COUNT: none. */
static enum vpmm_api by_version(const char *base, int version, uint64_t flags)
{
    bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    enum vpmm_api best = VPMM_API_COUNT;
    for (int i = 0; i < VPMM_API_WRAPPED; i++) {
        const struct vpmm_api_row *row = &rows[i];
        if (row->version > version || strcmp(base, row->base) != 0)
            continue;
        if (row->is_per_thread && !wants_per_thread)
            continue;
        bool is_better =
            best == VPMM_API_COUNT || row->is_per_thread > rows[best].is_per_thread ||
            (row->is_per_thread == rows[best].is_per_thread && row->version > rows[best].version);
        if (is_better)
            best = (enum vpmm_api)i;
    }
    return best;
}

/* Among functions of that base name, in a spelling that the request may mean, or of that exact
 * name, the one whose code was found; where two spellings share their code, the one that it means.
 */
static enum vpmm_api by_address(const char *symbol, uint64_t flags, enum vpmm_api meant,
                                vpmm_code *code)
{
    bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (meant != VPMM_API_COUNT && vpmm_original_at(meant) == code)
        return meant;
    for (int i = 0; i < VPMM_API_WRAPPED; i++) {
        const struct vpmm_api_row *row = &rows[i];
        bool is_meant = wants_per_thread || !row->is_per_thread;
        if (vpmm_original_at((enum vpmm_api)i) == code &&
            ((is_meant && strcmp(symbol, row->base) == 0) || strcmp(symbol, row->name) == 0))
            return (enum vpmm_api)i;
    }
    return VPMM_API_COUNT;
}

/* What a program gets that asked cuGetProcAddress for `symbol` and was answered `found` by the
 * driver: `found` itself or our wrapper for it. */
static void *substitute(const char *symbol, int version, uint64_t flags, void *found)
{
    if (!symbol || strncmp(symbol, "cu", 2) != 0 || !vpmm_original_is_driver(found))
        return found;
    vpmm_code *code;
    memcpy(&code, &found, sizeof code);
    enum vpmm_api meant = by_version(symbol, version, flags);
    enum vpmm_api api = by_address(symbol, flags, meant, code);
    /* A driver may answer with other code than it exports. Up to the version that the list was
     * checked against, name, version and flags leave one ABI; a newer request may mean an ABI that
     * we do not know. */
    if (api == VPMM_API_COUNT && version <= VPMM_API_VERSION_CHECKED)
        api = meant;
    if (api == VPMM_API_COUNT || !vpmm_original_at(api))
        return found;
    void *wrapper;
    memcpy(&wrapper, &rows[api].wrapper, sizeof wrapper);
    return wrapper;
}

CUresult vpmm_wrap_cuGetProcAddress(const char *symbol, void **function_out, int version,
                                    cuuint64_t flags)
{
    vpmm_lookup_begins();
    CUresult result = VPMM_ORIGINAL(cuGetProcAddress, symbol, function_out, version, flags);
    if (result == CUDA_SUCCESS && function_out && *function_out)
        *function_out = substitute(symbol, version, flags, *function_out);
    return result;
}

CUresult vpmm_wrap_cuGetProcAddress_v2(const char *symbol, void **function_out, int version,
                                       cuuint64_t flags, int *status_out)
{
    vpmm_lookup_begins();
    CUresult result =
        VPMM_ORIGINAL(cuGetProcAddress_v2, symbol, function_out, version, flags, status_out);
    if (result == CUDA_SUCCESS && function_out && *function_out)
        *function_out = substitute(symbol, version, flags, *function_out);
    return result;
}
