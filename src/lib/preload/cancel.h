/* SPDX-License-Identifier: MIT */
/* Original calls in which a thread may end because somebody cancels it, while it keeps something
 * that other threads wait for. Work of our own holds cancellations off instead (base/lock.h): a
 * call that waits for the program's work must not, because bare CUDA may let the thread end. */
#ifndef VPMM_PRELOAD_CANCEL_H
#define VPMM_PRELOAD_CANCEL_H

#include <pthread.h>

/* The block `...`, which must not be left by a jump or a return. A thread that is cancelled in it
 * calls undo(self), a void function of a void pointer, before it ends. Costs some 20 ns. */
#define VPMM_UNDO_IF_CANCELLED(undo, self, ...)                                                    \
    do {                                                                                           \
        pthread_cleanup_push(undo, self);                                                          \
        __VA_ARGS__                                                                                \
        pthread_cleanup_pop(0);                                                                    \
    } while (0)

#endif
