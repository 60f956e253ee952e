/* SPDX-License-Identifier: MIT */
/* Reaches driver functions from inside a plug-in. */
#define _GNU_SOURCE
#include "reach.h"

int reach(const char *driver);
int reach(const char *driver)
{
    int result = reach_opened(driver);
    (void)fflush(stdout);
    return result;
}
