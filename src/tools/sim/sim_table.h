/* SPDX-License-Identifier: MIT */
/* The seam over a simulated machine, for tests of what uses driver/driver.h. Handles are the
 * machine's own: a vpmm_stream_handle is its CUstream, and so on. Every operation first checks that
 * the calling thread holds no ranked lock, and reports SIM_LOCK_HELD where it does. */
#ifndef VPMM_SIM_TABLE_H
#define VPMM_SIM_TABLE_H

#include "driver/driver.h"
#include "sim/engine.h"

/* Fills `driver_out` with operations on `sim`, which must outlive it. What the configured driver
 * version lacks is NULL. */
void sim_table_fill(struct sim *sim, struct vpmm_driver *driver_out);
/* Its part: streams of our own, copies and host memory. */
void sim_table_fill_host(struct vpmm_driver *driver);
/* The translation of codes that the seam asks for. */
enum vpmm_status sim_table_status(CUresult code);

#endif
