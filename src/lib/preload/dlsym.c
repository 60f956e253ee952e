/* SPDX-License-Identifier: MIT */
/* The exported dlsym. A look-up that we do not rewrite must reach the real dlsym by a jump, as if
 * we were not there: for RTLD_NEXT and RTLD_DEFAULT the real one finds out who called by its return
 * address. Assembly makes that jump at every optimisation level. Must not do anything else: no
 * lock, allocation, message, environment or driver call. */
#define _GNU_SOURCE
#include "preload/wrap_lookup.h"
#include "preload/original.h"

#include <dlfcn.h>
#include <string.h>

/* Named in the assembly only, which the compiler does not read. */
vpmm_dlsym_fn *vpmm_dlsym_choose(void *handle, const char *name) __attribute__((used));

/* dlsym(handle, name): vpmm_dlsym_choose(handle, name), then a jump to what it returned with the
 * same arguments. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call vpmm_dlsym_choose\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "hint #34\n" /* bti c */
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "bl vpmm_dlsym_choose\n"
        "mov x16, x0\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#    error "dlsym is written for x86-64 and aarch64"
#endif

/* Stands in where no real dlsym could be found: the program sees a failed look-up. */
static void *find_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

/* One of our names in a library that the program opened: the real answer first, which also leaves
 * the dlerror state that the program expects; ours instead only if the real one is the driver's. */
static void *find_wrapper(void *handle, const char *name)
{
    void *found = vpmm_original_dlsym_next()(handle, name);
    if (!found || !vpmm_original_is_driver(found))
        return found;
    void *wrapper;
    memcpy(&wrapper, &vpmm_api_row(vpmm_api_by_name(name))->wrapper, sizeof wrapper);
    return wrapper;
}

vpmm_dlsym_fn *vpmm_dlsym_choose(void *handle, const char *name)
{
    vpmm_dlsym_fn *next = vpmm_original_dlsym_next();
    if (!next)
        return find_nothing;
    /* Under RTLD_DEFAULT our exported names come first anyway; RTLD_NEXT asks for what is behind
     * somebody. */
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name ||
        vpmm_api_by_name(name) == VPMM_API_COUNT)
        return next;
    return find_wrapper;
}
