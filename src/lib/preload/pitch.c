/* SPDX-License-Identifier: MIT */
/* Learns the pitch that the driver gives to rows of a kind. Must not promise a pitch that no answer
 * of the driver has shown. */
#include "preload/pitch.h"

#include "preload/original.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    UNKNOWN,
    RIGHT,
    WRONG,
};

/* What is known of rows like these. */
struct rows {
    atomic_uint *seen; /* of one element size; those of unaligned widths come first */
    bool is_aligned;
    size_t pitch; /* if the rule holds */
};

/* False where there is no rule: the driver refuses such rows, or tells of no alignment. */
static bool look(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes,
                 struct rows *rows_out)
{
    CUdevice device;
    int unit;
    if ((element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
        VPMM_ORIGINAL(cuCtxGetDevice, &device) != CUDA_SUCCESS || device < 0 ||
        device >= VPMM_DEVICES_MAX ||
        VPMM_ORIGINAL(cuDeviceGetAttribute, &unit, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) !=
            CUDA_SUCCESS ||
        unit <= 0 || width_bytes > SIZE_MAX - (size_t)unit)
        return false;
    size_t aligned = (width_bytes + (size_t)unit - 1) / (size_t)unit * (size_t)unit;
    *rows_out = (struct rows){.seen = pitches->seen[device][element_bytes / 8],
                              .is_aligned = aligned == width_bytes,
                              .pitch = aligned};
    return true;
}

size_t vpmm_pitch_of(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes)
{
    struct rows rows;
    return look(pitches, width_bytes, element_bytes, &rows) &&
                   atomic_load(&rows.seen[rows.is_aligned]) == RIGHT
               ? rows.pitch
               : 0;
}

void vpmm_pitch_seen(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes,
                     size_t pitch_bytes)
{
    struct rows rows;
    unsigned unknown = UNKNOWN;
    if (!look(pitches, width_bytes, element_bytes, &rows))
        return;
    if (pitch_bytes == rows.pitch) {
        (void)atomic_compare_exchange_strong(&rows.seen[rows.is_aligned], &unknown, RIGHT);
        return;
    }
    atomic_store(&rows.seen[0], WRONG);
    atomic_store(&rows.seen[1], WRONG);
}
