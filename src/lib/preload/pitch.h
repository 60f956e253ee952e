/* SPDX-License-Identifier: MIT */
/* The pitch that the driver gives rows: the width, rounded up to the alignment of textures. That is
 * written nowhere, so it is believed only of widths of which an answer of the driver has shown it:
 * by device, element size, and whether the width itself is so aligned. One answer that is otherwise
 * ends it for that device and element size. */
#ifndef VPMM_PRELOAD_PITCH_H
#define VPMM_PRELOAD_PITCH_H

#include "driver/driver.h"

#include <cuda.h>
#include <stdatomic.h>

#define VPMM_ELEMENT_SIZES 3

/* All zero at first. */
struct vpmm_pitches {
    atomic_uint seen[VPMM_DEVICES_MAX][VPMM_ELEMENT_SIZES][2];
};

/* The pitch of rows of `width_bytes` on the device of the current context; 0: unknown, or the
 * driver would refuse such rows. */
size_t vpmm_pitch_of(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes);

/* The driver gave such rows that pitch on the device of the current context. */
void vpmm_pitch_seen(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes,
                     size_t pitch_bytes);

#endif
