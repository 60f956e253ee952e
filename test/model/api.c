/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A handle's scope includes what the library needs; only what it exports itself is a wrapper. */
static bool is_of(const void *code, const char *path)
{
    Dl_info info;
    return dladdr(code, &info) && strcmp(info.dli_fname, path) == 0;
}

static bool find(void *driver, void *library, const char *path, const char *name, void *slot)
{
    void *code = library ? dlsym(library, name) : NULL;
    if (!code || !is_of(code, path))
        code = dlsym(driver, name);
    if (!code)
        fprintf(stderr, "model: no %s\n", name);
    memcpy(slot, &code, sizeof code);
    return code != NULL;
}

bool api_open(struct api *api, const char *driver_path, const char *path, bool is_simulated)
{
    memset(api, 0, sizeof *api);
    void *driver = dlopen(driver_path, RTLD_NOW | RTLD_GLOBAL);
    void *library = driver && path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    bool found = driver && (library || !path);
    if (!found) {
        fprintf(stderr, "model: %s\n", dlerror());
        return false;
    }
#define FIND(name) found = find(driver, library, path, #name, &api->name) && found;
#define FIND_PAIR(type, plain, per_thread)                                                         \
    found = find(driver, library, path, #plain, &api->type[0]) &&                                  \
            find(driver, library, path, #per_thread, &api->type[1]) && found;
    API_LIST(FIND, FIND_PAIR)
    if (is_simulated) {
        SIM_LIST(FIND)
    }
    void *detach = library ? dlsym(library, "cuCtxDetach") : NULL;
    if (!detach || !is_of(detach, path))
        detach = dlsym(driver, "cuCtxDetach");
    memcpy(&api->cuCtxDetach, &detach, sizeof detach);
    api->is_old = !dlsym(driver, "cuCtxRecordEvent");
    return found;
}
