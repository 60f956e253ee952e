/* SPDX-License-Identifier: MIT */
/* The pitch that the driver gives rows. It is the width rounded up to a unit that the driver names
 * nowhere, so it is asked: by small allocations of one row, three for each device and element size,
 * which are never freed, because a free would wait for the program's work. Where their answers
 * follow no such rule, or any later answer does not, nothing is known any more. */
#ifndef VPMM_PRELOAD_PITCH_H
#define VPMM_PRELOAD_PITCH_H

#include "driver/driver.h"

#include <cuda.h>
#include <stdatomic.h>

#define VPMM_ELEMENT_SIZES 3

/* By device and element size: the unit; 0 where it was not asked, or VPMM_NO_PITCH. */
struct vpmm_pitches {
    atomic_uint units[VPMM_DEVICES_MAX][VPMM_ELEMENT_SIZES];
};
#define VPMM_NO_PITCH 1u

/* The pitch of rows of `width_bytes` on the device of the current context; 0: unknown, or the
 * driver would refuse such rows. Asks the driver where need be, which any capture that forbids
 * allocations here must not be under way for. */
size_t vpmm_pitch_of(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes);

/* The driver gave such rows that pitch on the device of the current context. */
void vpmm_pitch_seen(struct vpmm_pitches *pitches, size_t width_bytes, unsigned element_bytes,
                     size_t pitch_bytes);

/* More than any driver pads a row by: what is small even so needs no question. */
#define VPMM_PADDING_MAX 4095u

#endif
