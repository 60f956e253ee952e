/* SPDX-License-Identifier: MIT */
/* Entry points: what cuGetProcAddress answers for names, versions and flags, and errors' names and
 * texts. */
#define _GNU_SOURCE
#include "truth.h"

#include <dlfcn.h>

static void look_up(const char *name, int version, cuuint64_t flags)
{
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status = 99;
    CUresult result = cuGetProcAddress(name, &function, version, flags, &status);
    printf("%s, %d, %llu: %s, status %d, %s\n", name, version, (unsigned long long)flags,
           truth_code(result), (int)status,
           function == NULL        ? "null"
           : function == (void *)1 ? "untouched"
                                   : "found");
}

static void *found(const char *name, int version, cuuint64_t flags)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    cuGetProcAddress(name, &function, version, flags, &status);
    return function;
}

static void versions(void)
{
    static const struct {
        const char *name;
        int version;
    } all[] = {
        {"cuMemAlloc", 2000},
        {"cuMemAlloc", 3010},
        {"cuMemAlloc", 3020},
        {"cuMemAlloc", 12000},
        {"cuMemAlloc", 13000},
        {"cuMemAlloc", 0},
        {"cuMemAlloc", 1000},
        {"cuMemAlloc", 99000},
        {"cuMemAlloc_v2", 3020},
        {"cuMemAlloc_v2", 12000},
        {"cuMemFree", 2000},
        {"cuMemFree", 3020},
        {"cuMemAllocAsync", 11010},
        {"cuMemAllocAsync", 11020},
        {"cuMemAllocAsync_ptsz", 11020},
        {"cuCtxRecordEvent", 12040},
        {"cuCtxRecordEvent", 12050},
        {"cuCtxGetDevice", 2000},
        {"cuCtxGetDevice", 13000},
        {"cuStreamGetId", 11080},
        {"cuStreamGetId", 12000},
        {"cuGetProcAddress", 11020},
        {"cuGetProcAddress", 11030},
        {"cuGetProcAddress", 12000},
        {"cuGetProcAddress_v2", 12000},
        {"cuGetProcAddress_v2", 13000},
        {"cuInit", 2000},
        {"cuInit", 13000},
        {"cudaMalloc", 12000},
        {"cuNoSuchThing", 12000},
        {"", 0},
        {"", 12000},
        {"cuMemCreate", 10020},
        {"cuMemCreate", 10010},
        {"cuCtxCreate", 2000},
        {"cuCtxCreate", 3020},
        {"cuCtxCreate", 11040},
        {"cuCtxCreate", 12050},
        {"cuCtxCreate", 13000},
        {"cuDevicePrimaryCtxReset", 7000},
        {"cuDevicePrimaryCtxReset", 11000},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (cuuint64_t flags = 0; flags < 3; flags++)
            look_up(all[i].name, all[i].version, flags);
    look_up("cuMemAllocAsync", 11020, 3);
    look_up("cuMemAllocAsync", 11020, 4);
}

static void identities(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    PART("identities");
    ASK(found("cuMemAlloc", 2000, 0) == found("cuMemAlloc", 3020, 0));
    ASK(found("cuMemAlloc", 3020, 0) == found("cuMemAlloc", 13000, 0));
    ASK(found("cuMemAlloc", 3020, 0) == found("cuMemAlloc", 3020, 2));
    ASK(found("cuMemAlloc", 3020, 0) == dlsym(self, "cuMemAlloc_v2"));
    ASK(found("cuMemFree", 3020, 0) == dlsym(self, "cuMemFree_v2"));
    ASK(found("cuMemAllocAsync", 11020, 0) == found("cuMemAllocAsync", 11020, 2));
    ASK(found("cuMemAllocAsync", 11020, 0) == found("cuMemAllocAsync", 11020, 1));
    ASK(found("cuMemAllocAsync", 11020, 0) == dlsym(self, "cuMemAllocAsync"));
    ASK(found("cuMemAllocAsync", 11020, 2) == dlsym(self, "cuMemAllocAsync_ptsz"));
    ASK(found("cuMemFreeAsync", 11020, 2) == dlsym(self, "cuMemFreeAsync_ptsz"));
    ASK(found("cuGetProcAddress", 11030, 0) == found("cuGetProcAddress", 12000, 0));
    ASK(found("cuGetProcAddress", 11030, 0) == dlsym(self, "cuGetProcAddress"));
    ASK(found("cuGetProcAddress", 12000, 0) == dlsym(self, "cuGetProcAddress_v2"));
    ASK(dlsym(self, "cuNoSuchThing") == NULL);
    ASK(dlsym(self, "cuMemAlloc") == dlsym(self, "cuMemAlloc_v2"));
    dlclose(self);
}

static void odd_arguments(void)
{
    void *function = (void *)1;
    PART("odd arguments");
    ANSWER(cuGetProcAddress("cuMemAlloc", &function, 12000, 0, NULL));
    ASK(function != (void *)1);
    function = (void *)1;
    ANSWER(cuGetProcAddress("cuNoSuchThing", &function, 12000, 0, NULL));
    ASK(function == NULL);
    ANSWER(cuGetProcAddress("", &function, 0, 0, NULL));
}

static void errors(void)
{
    static const CUresult codes[] = {0,   1,   2,   3,   4,   34,  100, 101, 200, 201,
                                     202, 304, 400, 401, 500, 600, 700, 709, 719, 801,
                                     900, 901, 904, 905, 906, 907, 908, 999, 5,   1234};
    PART("errors");
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        const char *name = "untouched", *text = "untouched";
        CUresult result = cuGetErrorName(codes[i], &name);
        CUresult second = cuGetErrorString(codes[i], &text);
        printf("%d: %d %s, %d %s\n", (int)codes[i], (int)result, name ? name : "null", (int)second,
               text ? text : "null");
    }
}

int main(void)
{
    int version = 0;
    PART("before cuInit");
    look_up("cuMemAlloc", 12000, 0);
    look_up("", 0, 0);
    ANSWER(cuDriverGetVersion(&version));
    ANSWER(cuInit(1));
    MUST(cuInit(0));
    ANSWER(cuInit(0));
    PART("look-ups");
    versions();
    identities();
    odd_arguments();
    errors();
    return 0;
}
