/* SPDX-License-Identifier: MIT */
/* The clock of a world on a simulated device. It wraps vpmm_now_ms and vpmm_pause, so the targets
 * that link it say so to the linker. One device at a time, one thread. */
#ifndef VPMM_TEST_FUZZ_DEVICE_CLOCK_H
#define VPMM_TEST_FUZZ_DEVICE_CLOCK_H

#include "sim/engine.h"

/* From now on this device works while the heap pauses. */
void device_clock_start(struct sim *sim);

#endif
