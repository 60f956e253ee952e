/* SPDX-License-Identifier: MIT */
/* The half of the device that holds memory, and what both halves use. */
#ifndef VPMM_TEST_SCHEDULE_DEVICE_MEMORY_H
#define VPMM_TEST_SCHEDULE_DEVICE_MEMORY_H

#include "device.h"

void device_memory_fill(struct vpmm_driver *driver);
/* Whether this is the call that is to fail. */
bool device_call_fails(struct gpu *device, enum device_call call);
/* The step of a driver call: no lock may be held. */
void device_do(struct step *step);

#endif
