/* SPDX-License-Identifier: MIT */
/* Preloaded in front of the library under test: sees every driver look-up of a program and the
 * answer that the program gets. Appends to the file SPY_LOG one line each: "dlsym NAME OWNER" or
 * "look-up NAME VERSION FLAGS OWNER", where OWNER is the file name of the library that the answer
 * lies in, or "nothing". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *dlsym_fn(void *handle, const char *name);
typedef int look_up4_fn(const char *symbol, void **function_out, int version, uint64_t flags);
typedef int look_up5_fn(const char *symbol, void **function_out, int version, uint64_t flags,
                        int *status_out);

static look_up4_fn *inner4;
static look_up5_fn *inner5;

static const char *owner(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info))
        return "nothing";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static void note(const char *line)
{
    int fd = open(getenv("SPY_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
        _exit(125);
    close(fd);
}

static int look_up5(const char *symbol, void **function_out, int version, uint64_t flags,
                    int *status_out);
static int look_up4(const char *symbol, void **function_out, int version, uint64_t flags);

/* Stays in front of the resolvers themselves. */
static void *keep(const char *name, int is_new, void *found)
{
    if (!found || strncmp(name, "cuGetProcAddress", strlen("cuGetProcAddress")) != 0)
        return found;
    if (is_new) {
        inner5 = (look_up5_fn *)found;
        return (void *)look_up5;
    }
    inner4 = (look_up4_fn *)found;
    return (void *)look_up4;
}

static void note_look_up(const char *symbol, void **function_out, int version, uint64_t flags)
{
    char line[256];
    if (symbol[0] == '\0')
        return;
    snprintf(line, sizeof line, "look-up %s %d %d %s\n", symbol, version, (int)flags,
             owner(*function_out));
    note(line);
    *function_out = keep(symbol, version >= 12000, *function_out);
}

static int look_up5(const char *symbol, void **function_out, int version, uint64_t flags,
                    int *status_out)
{
    int code = inner5(symbol, function_out, version, flags, status_out);
    note_look_up(symbol, function_out, version, flags);
    return code;
}

static int look_up4(const char *symbol, void **function_out, int version, uint64_t flags)
{
    int code = inner4(symbol, function_out, version, flags);
    note_look_up(symbol, function_out, version, flags);
    return code;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    static dlsym_fn *next;
    if (!next) {
        dlsym_fn *real = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real)
            real = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        if (!real)
            real = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        void *found = real(RTLD_NEXT, "dlsym");
        next = (dlsym_fn *)found;
    }
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || strncmp(name, "cu", 2) != 0)
        return next(handle, name);
    char line[256];
    void *found = next(handle, name);
    snprintf(line, sizeof line, "dlsym %s %s\n", name, owner(found));
    note(line);
    return keep(name, strcmp(name, "cuGetProcAddress_v2") == 0, found);
}
