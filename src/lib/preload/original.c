/* SPDX-License-Identifier: MIT */
/* Finds the real dlsym and the driver's own functions. Must not load a driver: it takes the one
 * that the program has loaded. */
#define _GNU_SOURCE
#include "preload/original.h"

#include "base/status.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#define DRIVER_NAME "libcuda.so"

/* Whatever thread finds a value finds the same one: racing finders need no lock, and no fork can
 * catch one half way. */
static struct {
    _Atomic(void *) dlsym; /* the C library's */
    _Atomic(void *)
        dlsym_next; /* the next one after us: another preloaded library's, or the C library's */
    _Atomic(void *) anchor;  /* where the program's libcuda is loaded, once it was seen */
    _Atomic(void *) handle;  /* dlopen handle of that libcuda */
    atomic_bool is_complete; /* `at` is filled */
    _Atomic(vpmm_code *) at[VPMM_API_COUNT]; /* NULL where this driver has no such function */
} originals;

static const char *const names[VPMM_API_COUNT] = {
#define VPMM_API(name, base, version, spelling, parameters) [VPMM_API_##name] = #name,
#define VPMM_STREAM(name, base, version, spelling, n, place) [VPMM_API_##name] = #name,
#define VPMM_USED(name, parameters) [VPMM_API_##name] = #name,
#include "preload/api.def"
};

/* ISO C has no conversion between the two kinds of pointer; POSIX promises that their bytes mean
 * the same. */
static vpmm_code *code_at(void *address)
{
    vpmm_code *code;
    memcpy(&code, &address, sizeof code);
    return code;
}

static vpmm_dlsym_fn *dlsym_at(void *address)
{
    return (vpmm_dlsym_fn *)code_at(address);
}

static void *find_libc_dlsym(void)
{
    void *found = atomic_load_explicit(&originals.dlsym, memory_order_acquire);
    if (found)
        return found;
    static const char versions[][12] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    atomic_store_explicit(&originals.dlsym, found, memory_order_release);
    return found;
}

vpmm_dlsym_fn *vpmm_original_dlsym_next(void)
{
    void *next = atomic_load_explicit(&originals.dlsym_next, memory_order_acquire);
    if (next)
        return dlsym_at(next);
    void *libc_dlsym = find_libc_dlsym();
    if (!libc_dlsym)
        return NULL;
    /* dlvsym passes over the unversioned dlsym of another preloaded library; this look-up does not.
     */
    next = dlsym_at(libc_dlsym)(RTLD_NEXT, "dlsym");
    if (!next)
        next = libc_dlsym;
    atomic_store_explicit(&originals.dlsym_next, next, memory_order_release);
    return dlsym_at(next);
}

static bool is_driver_file(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *file = slash ? slash + 1 : path;
    return file && strncmp(file, DRIVER_NAME, sizeof DRIVER_NAME - 1) == 0;
}

bool vpmm_original_is_driver(const void *address)
{
    Dl_info here, there;
    if (!dladdr(address, &here))
        return false;
    void *anchor = atomic_load_explicit(&originals.anchor, memory_order_acquire);
    /* Until we hold it, the program may close the library that was seen and open it elsewhere. */
    if (anchor && dladdr(anchor, &there) && is_driver_file(there.dli_fname))
        return here.dli_fbase == there.dli_fbase;
    if (!is_driver_file(here.dli_fname))
        return false;
    return atomic_compare_exchange_strong(&originals.anchor, &anchor, here.dli_fbase) ||
           anchor == here.dli_fbase;
}

/* A reference of our own keeps the library where it is, whatever the program closes. */
static void *open_driver(void)
{
    Dl_info info;
    const void *anchor = atomic_load_explicit(&originals.anchor, memory_order_acquire);
    if (anchor && dladdr(anchor, &info) && info.dli_fname) {
        void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle)
            return handle;
    }
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

bool vpmm_original_find(void)
{
    if (atomic_load_explicit(&originals.is_complete, memory_order_acquire))
        return true;
    void *libc_dlsym = find_libc_dlsym();
    void *handle = libc_dlsym ? open_driver() : NULL;
    if (!handle)
        return false;
    for (int i = 0; i < VPMM_API_COUNT; i++) {
        void *found = dlsym_at(libc_dlsym)(handle, names[i]);
        /* A handle's scope includes what the library needs; only its own code is an original. */
        if (found && !vpmm_original_is_driver(found))
            found = NULL;
        atomic_store_explicit(&originals.at[i], code_at(found), memory_order_relaxed);
    }
    atomic_store_explicit(&originals.handle, handle, memory_order_relaxed);
    atomic_store_explicit(&originals.is_complete, true, memory_order_release);
    return true;
}

void *vpmm_original_lookup(void *self, const char *name)
{
    (void)self;
    if (!vpmm_original_find())
        return NULL;
    return dlsym_at(find_libc_dlsym())(originals.handle, name);
}

VPMM_NOINLINE static vpmm_code *find_at(enum vpmm_api api)
{
    if (!vpmm_original_find())
        return NULL;
    return atomic_load_explicit(&originals.at[api], memory_order_relaxed);
}

/* Once filled, a place never changes: what stands there needs no other look. */
vpmm_code *vpmm_original_known(enum vpmm_api api)
{
    return atomic_load_explicit(&originals.at[api], memory_order_relaxed);
}

vpmm_code *vpmm_original_at(enum vpmm_api api)
{
    vpmm_code *code = vpmm_original_known(api);
    return code ? code : find_at(api);
}
