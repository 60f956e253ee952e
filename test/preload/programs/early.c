/* SPDX-License-Identifier: MIT */
/* A library whose constructor looks a driver function up and calls it, before most other
 * constructors ran. */
#define _GNU_SOURCE
#include "reach.h"

__attribute__((constructor)) static void early(void)
{
    (void)reach_opened("libcuda.so.1");
    (void)fflush(stdout);
}
