/* SPDX-License-Identifier: MIT */
/* Tells where a process crashed. It must not end a process that goes on. */
#define _GNU_SOURCE
#include "crash.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_MAX 24

static void (*tell)(bool in_driver, const char *frames);

static const char *object_of(const void *address, uintptr_t *offset_out)
{
    Dl_info info = {0};
    if (!dladdr(address, &info) || !info.dli_fname) {
        *offset_out = (uintptr_t)address;
        return "?";
    }
    const char *slash = strrchr(info.dli_fname, '/');
    *offset_out = (uintptr_t)address - (uintptr_t)info.dli_fbase;
    return slash ? slash + 1 : info.dli_fname;
}

static bool is_c_library(const char *object)
{
    return strncmp(object, "libc.", 5) == 0 || strncmp(object, "libpthread", 10) == 0 ||
           strncmp(object, "ld-linux", 8) == 0;
}

static bool is_driver(const char *object)
{
    return strncmp(object, "libcuda.", 8) == 0 || strncmp(object, "libnvidia", 9) == 0;
}

/* The first frames are the handler's and the C library's, down to the one that was interrupted. */
static void crashed(int number)
{
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    static char text[FRAMES_MAX * 64];
    void *frames[FRAMES_MAX];
    bool is_decided = false, in_driver = false;
    size_t at = 0;
    if (atomic_flag_test_and_set(&is_told))
        pause();
    int n = backtrace(frames, FRAMES_MAX);
    for (int i = 1; i < n; i++) {
        uintptr_t offset;
        const char *object = object_of(frames[i], &offset);
        if (!is_decided && !is_c_library(object)) {
            is_decided = true;
            in_driver = is_driver(object);
        }
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, " %s+%#jx", object,
                                   (uintmax_t)offset);
    }
    tell(in_driver, text);
    _exit(128 + number);
}

void crash_tell_to(void (*told)(bool in_driver, const char *frames))
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
    void *first[1];
    tell = told;
    /* The first call loads what it needs, which a handler must not. */
    (void)backtrace(first, 1);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaction(numbers[i], &action, NULL);
}
