/* SPDX-License-Identifier: MIT */
/* What the program reach and its plug-in share. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *owner(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info))
        return "nothing";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static int reach_by(void *(*find)(void *handle, const char *name), void *handle)
{
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2",
                                        "cuMemAllocAsync"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %s\n", names[i], owner(find(handle, names[i])));
    void *found = find(handle, "cuMemAlloc_v2");
    int (*allocate)(unsigned long long *, size_t);
    unsigned long long address = 0;
    memcpy(&allocate, &found, sizeof allocate);
    printf("sync %d\n", allocate(&address, 1u << 20));
    int (*allocate_async)(unsigned long long *, size_t, void *);
    found = find(handle, "cuMemAllocAsync");
    memcpy(&allocate_async, &found, sizeof allocate_async);
    printf("async %d\n", allocate_async(&address, 1u << 20, NULL));
    return 0;
}

static inline int reach_opened(const char *driver)
{
    void *handle = dlopen(driver, RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return reach_by(dlsym, handle);
}
