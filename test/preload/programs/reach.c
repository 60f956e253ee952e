/* SPDX-License-Identifier: MIT */
/* Reaches driver functions in one way and says in which library each of them lies; then calls
 * cuMemAlloc_v2 and cuMemAllocAsync with 1 MiB each. Ways: "open FILE" and dlsym; "deep PLUGIN
 * FILE", the same inside a plug-in opened with RTLD_DEEPBIND; "apart PLUGIN FILE", inside one in a
 * namespace of its own; "again FILE", after it was opened, looked into and closed once, and its
 * place taken. Built with -DLINKED: "link", by name at link time. */
#define _GNU_SOURCE
#include "reach.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifdef LINKED
int cuMemAlloc_v2(unsigned long long *address_out, size_t bytes);
int cuMemAllocAsync(unsigned long long *address_out, size_t bytes, void *stream);
int cuMemFree_v2(unsigned long long address);
int cuInit(unsigned flags);

static void *find_linked(void *handle, const char *name)
{
    (void)handle;
    if (strcmp(name, "cuMemAlloc_v2") == 0)
        return (void *)cuMemAlloc_v2;
    if (strcmp(name, "cuMemAllocAsync") == 0)
        return (void *)cuMemAllocAsync;
    if (strcmp(name, "cuMemFree_v2") == 0)
        return (void *)cuMemFree_v2;
    return strcmp(name, "cuInit") == 0 ? (void *)cuInit : NULL;
}
#endif

static int reach_in(void *plugin, const char *driver)
{
    int (*function)(const char *);
    void *found = plugin ? dlsym(plugin, "reach") : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    memcpy(&function, &found, sizeof function);
    return function(driver);
}

static int reach_again(const char *driver)
{
    Dl_info info, gone;
    void *handle = dlopen(driver, RTLD_NOW);
    void *found = handle ? dlsym(handle, "cuInit") : NULL;
    if (!found || !dladdr(found, &info) || !dlsym(handle, "cuMemAlloc_v2") || dlclose(handle) != 0)
        return 1;
    if (dladdr(found, &gone)) {
        fprintf(stderr, "still there\n");
        return 1;
    }
    if (mmap(info.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
             0) == MAP_FAILED)
        return 1;
    return reach_opened(driver);
}

int main(int n, char **arguments)
{
    if (n < 2)
        return 2;
#ifdef LINKED
    if (strcmp(arguments[1], "link") == 0)
        return reach_by(find_linked, NULL);
#endif
    if (strcmp(arguments[1], "open") == 0)
        return reach_opened(arguments[2]);
    if (strcmp(arguments[1], "again") == 0)
        return reach_again(arguments[2]);
    if (strcmp(arguments[1], "deep") == 0)
        return reach_in(dlopen(arguments[2], RTLD_NOW | RTLD_DEEPBIND), arguments[3]);
    if (strcmp(arguments[1], "apart") == 0)
        return reach_in(dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW), arguments[3]);
    return 2;
}
