/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)256 << 10)

#if defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define FIBER_ADDRESS_SANITIZER 1
#    endif
#elif defined(__SANITIZE_ADDRESS__)
#    define FIBER_ADDRESS_SANITIZER 1
#endif
#ifdef FIBER_ADDRESS_SANITIZER
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
#endif

static struct fiber {
    ucontext_t context;
    void *stack;
    void (*body)(void);
    const void *bottom; /* of the stack, as the sanitizer knows it */
    size_t bytes;
} fibers[SCHEDULE_THREADS + 1];
static int current = FIBER_MAIN;
static int previous;

static void arrive(void *fake_stack)
{
#ifdef FIBER_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(fake_stack, &fibers[previous].bottom, &fibers[previous].bytes);
#else
    (void)fake_stack;
#endif
}

static void enter(void)
{
    arrive(NULL);
    fibers[current].body();
}

void fiber_prepare(int number, void (*body)(void))
{
    struct fiber *fiber = &fibers[number];
    if (!fiber->stack)
        fiber->stack =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fiber->stack == MAP_FAILED || getcontext(&fiber->context))
        schedule_fail("no stack for a thread");
#ifdef FIBER_ADDRESS_SANITIZER
    __asan_unpoison_memory_region(fiber->stack, STACK_BYTES);
#endif
    fiber->bottom = fiber->stack;
    fiber->bytes = STACK_BYTES;
    fiber->body = body;
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, enter, 0);
}

void fiber_switch(int from, int to)
{
    void *fake_stack = NULL;
    previous = from;
    current = to;
#ifdef FIBER_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&fake_stack, fibers[to].bottom, fibers[to].bytes);
#endif
    (void)swapcontext(&fibers[from].context, &fibers[to].context);
    arrive(fake_stack);
}
