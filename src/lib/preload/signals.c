/* SPDX-License-Identifier: MIT */
/* The handlers for the signal that asks for a dump and for SIGBUS. They must not lock, allocate or
 * change errno, and must not keep a signal from a program that answers it. */
#define _GNU_SOURCE
#include "preload/signals.h"

#include "preload/entry.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

static void answer_dump(int number)
{
    int before = errno;
    (void)number;
    vpmm_entry_dump();
    errno = before;
}

/* What the program did on SIGBUS. Written before the handler is installed, which is handed nothing
 * that leads to it; a forked child has its parent's. */
static struct sigaction bus_before;

/* As if this handler were not there. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = &bus_before;
    bool is_fault = info->si_code > 0;
    if ((before->sa_flags & SA_SIGINFO) != 0) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else if (is_fault || before->sa_handler == SIG_DFL) {
        /* A fault happens again at once; a signal that was sent is sent again. */
        (void)signal(number, SIG_DFL);
        if (!is_fault)
            (void)raise(number);
    }
}

static void answer_bus(int number, siginfo_t *info, void *context)
{
    int before = errno;
    bool is_ours = info->si_code > 0 && vpmm_entry_absorb(info->si_addr);
    if (!is_ours)
        pass_on(number, info, context);
    errno = before;
}

static void install_bus(struct vpmm_signals *signals)
{
    struct sigaction before, ours = {.sa_sigaction = answer_bus};
    if (sigaction(SIGBUS, NULL, &before) != 0)
        return;
    /* A forked child finds its parent's handler. */
    if (before.sa_sigaction != answer_bus)
        bus_before = before;
    ours.sa_mask = bus_before.sa_mask;
    ours.sa_flags = (bus_before.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
    signals->has_bus = sigaction(SIGBUS, &ours, NULL) == 0;
}

/* A program that answers the signal, or ignores it, keeps doing so. */
static void install_dump(struct vpmm_signals *signals, int number)
{
    struct sigaction old;
    if (number == 0 || sigaction(number, NULL, &old) != 0)
        return;
    bool is_ours = old.sa_handler == answer_dump; /* a forked child finds its parent's */
    if ((old.sa_flags & SA_SIGINFO) != 0 || (old.sa_handler != SIG_DFL && !is_ours))
        return;
    struct sigaction ours = {.sa_handler = answer_dump, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void)sigemptyset(&ours.sa_mask);
    if (sigaction(number, &ours, NULL) == 0)
        signals->dump_signal = number;
}

void vpmm_signals_install(struct vpmm_signals *signals, int dump_signal, bool is_recording)
{
    install_dump(signals, dump_signal);
    if (is_recording)
        install_bus(signals);
}

/* The program may have put its own in the place of ours. */
void vpmm_signals_remove(struct vpmm_signals *signals)
{
    struct sigaction now;
    int number = signals->dump_signal;
    if (number && sigaction(number, NULL, &now) == 0 && now.sa_handler == answer_dump)
        (void)signal(number, SIG_DFL);
    if (signals->has_bus && sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == answer_bus)
        (void)sigaction(SIGBUS, &bus_before, NULL);
    *signals = (struct vpmm_signals){0};
}
