/* SPDX-License-Identifier: MIT */
/* The clock of all that waits or comes due. It only goes forward, and has no relation to the time
 * of day. No state; any thread. */
#ifndef VPMM_BASE_CLOCK_H
#define VPMM_BASE_CLOCK_H

#include <stdint.h>

uint64_t vpmm_now_ms(void);

#endif
