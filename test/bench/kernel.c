/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "kernel.h"

#include "../programs/truth.h"

/* use_kernel of bench.cuh: it looks at the device's clock until the time is over. */
static const char source[] = ".version 6.0\n"
                             ".target sm_50\n"
                             ".address_size 64\n"
                             ".visible .entry use(.param .u64 words, .param .u64 duration)\n"
                             "{\n"
                             "  .reg .pred %more;\n"
                             "  .reg .u64 %words, %duration, %start, %now, %spent;\n"
                             "  ld.param.u64 %words, [words];\n"
                             "  ld.param.u64 %duration, [duration];\n"
                             "  cvta.to.global.u64 %words, %words;\n"
                             "  mov.u64 %start, %globaltimer;\n"
                             "  st.global.u64 [%words], %start;\n"
                             "again:\n"
                             "  mov.u64 %now, %globaltimer;\n"
                             "  sub.u64 %spent, %now, %start;\n"
                             "  setp.lt.u64 %more, %spent, %duration;\n"
                             "  @%more bra again;\n"
                             "  ret;\n"
                             "}\n";

static CUfunction use;

void kernel_load(void)
{
    CUmodule module;
    MUST(cuModuleLoadData(&module, source));
    MUST(cuModuleGetFunction(&use, module, "use"));
}

void kernel_queue(CUstream stream, CUdeviceptr block, uint64_t ns)
{
    void *parameters[] = {&block, &ns};
    MUST(cuLaunchKernel(use, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}
