/* SPDX-License-Identifier: MIT */
/* Joins ipc to the heaps: whose memory it lends to other processes. */
#ifndef VPMM_PRELOAD_IPC_H
#define VPMM_PRELOAD_IPC_H

#include "ipc/ipc.h"
#include "route/route.h"

/* It lends what the router has exported. */
struct vpmm_ipc_lender vpmm_ipc_lender_of(struct vpmm_router *router);

#endif
