/* SPDX-License-Identifier: MIT */
/* Shows a router through src/observe: the adapter between pools, fences and counters on one side
 * and rows on the other. No lock, no allocation, no driver call, no message. */
#ifndef VPMM_PRELOAD_REPORT_H
#define VPMM_PRELOAD_REPORT_H

#include "config/config.h"
#include "route/route.h"

/* Writes the region maps of all devices to where `config` says. Safe in a signal handler. */
void vpmm_report_dump(const struct vpmm_config *config, struct vpmm_router *router);

/* Writes the statistics of the process to where `config` says. */
void vpmm_report_stats(const struct vpmm_config *config, struct vpmm_router *router);

#endif
