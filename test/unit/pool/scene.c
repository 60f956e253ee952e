/* SPDX-License-Identifier: MIT */
#include "scene.h"

struct world w;

int set_up(void **state)
{
    (void)state;
    world_init(&w, 2 * MIB, 1, 256);
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    world_finish(&w);
    return 0;
}
