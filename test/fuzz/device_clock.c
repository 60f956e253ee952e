/* SPDX-License-Identifier: MIT */
/* The heap's clock goes on in its pauses alone, so that one input means one run. Meanwhile the
 * device works, and gets done what nothing holds up before the heap's patience is over: a device
 * that does not is one on which a cudaMalloc that needs what cudaFreeAsync left is rightly refused.
 */
#include "device_clock.h"

#define PAUSE_MS 20
#define STEPS_A_PAUSE 64

uint64_t __wrap_vpmm_now_ms(void);
void __wrap_vpmm_pause(void);
static uint64_t now_ms;
static struct sim *device;

void device_clock_start(struct sim *sim)
{
    device = sim;
}

uint64_t __wrap_vpmm_now_ms(void)
{
    return now_ms;
}

void __wrap_vpmm_pause(void)
{
    now_ms += PAUSE_MS;
    for (int i = 0; i < STEPS_A_PAUSE && sim_step(device); i++)
        ;
}
