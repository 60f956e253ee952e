/* SPDX-License-Identifier: MIT */
/* Makes one call of the CUDA runtime, which makes the runtime look up every driver function it may
 * ever need. */
#include <stdio.h>

int cudaMalloc(void **address_out, unsigned long bytes);

int main(void)
{
    void *address = NULL;
    printf("result %d\n", cudaMalloc(&address, 1ul << 20));
    return 0;
}
