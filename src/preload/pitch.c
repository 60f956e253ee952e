/* SPDX-License-Identifier: MIT */
#include "preload/pitch.h"

#include "preload/original.h"

#include <stdint.h>

/* The first is shorter than any unit; the others are a little more than powers of two, so that each
 * unit rounds them to something else. */
static const size_t asked_widths[] = {16, 1040, 65552};
#define ASKED (sizeof asked_widths / sizeof asked_widths[0])

/* Where the unit of such rows on the current device stands; NULL: the driver refuses them. */
static atomic_uint *unit_at(struct vpmm_pitches *pitches, unsigned element_bytes)
{
    CUdevice device;
    if ((element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
        VPMM_ORIGINAL(cuCtxGetDevice, &device) != CUDA_SUCCESS || device < 0 ||
        device >= VPMM_DEVICES_MAX)
        return NULL;
    return &pitches->units[device][element_bytes / 8];
}

static size_t round_up(size_t width_bytes, size_t unit)
{
    return width_bytes > SIZE_MAX - unit ? 0 : (width_bytes + unit - 1) / unit * unit;
}

/* 0 where the driver has no answer this time. */
static unsigned ask(unsigned element_bytes)
{
    size_t unit = 0;
    for (unsigned i = 0; i < ASKED; i++) {
        CUdeviceptr row;
        size_t pitch;
        if (VPMM_ORIGINAL(cuMemAllocPitch_v2, &row, &pitch, asked_widths[i], 1, element_bytes) !=
            CUDA_SUCCESS)
            return 0;
        if (i == 0)
            unit = pitch;
        if (unit > VPMM_PADDING_MAX || unit <= asked_widths[0] ||
            pitch != round_up(asked_widths[i], unit))
            return VPMM_NO_PITCH;
    }
    return (unsigned)unit;
}

size_t vpmm_pitch_of(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes)
{
    atomic_uint *known = unit_at(pitches, element_bytes);
    unsigned unit = known ? atomic_load(known) : VPMM_NO_PITCH;
    if (unit == 0) {
        unsigned none = 0;
        unit = ask(element_bytes);
        if (unit && !atomic_compare_exchange_strong(known, &none, unit))
            unit = none;
    }
    return unit > VPMM_NO_PITCH ? round_up(width_bytes, unit) : 0;
}

void vpmm_pitch_seen(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes,
                     size_t pitch_bytes)
{
    atomic_uint *known = unit_at(pitches, element_bytes);
    unsigned unit = known ? atomic_load(known) : 0;
    if (unit > VPMM_NO_PITCH && pitch_bytes != round_up(width_bytes, unit))
        atomic_store(known, VPMM_NO_PITCH);
}
