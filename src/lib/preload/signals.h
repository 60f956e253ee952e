/* SPDX-License-Identifier: MIT */
/* The signals that this process answers for the library: the one that asks for a dump, and SIGBUS
 * while a trace is recorded, because another program may cut the trace's file. Handlers are made
 * with the router, not when the library is loaded, and are never made where the program has its own
 * for the dump signal. A SIGBUS that is not ours goes to whom it would go without the library. */
#ifndef VPMM_PRELOAD_SIGNALS_H
#define VPMM_PRELOAD_SIGNALS_H

#include <stdbool.h>

/* All zero at first. */
struct vpmm_signals {
    int dump_signal; /* that has our handler; 0: none */
    bool has_bus;    /* SIGBUS has our handler */
};

/* Once a process, inside us. `dump_signal` 0: none. */
void vpmm_signals_install(struct vpmm_signals *signals, int dump_signal, bool is_recording);
/* In a forked child: makes what is still our handler the program's again. */
void vpmm_signals_remove(struct vpmm_signals *signals);

#endif
