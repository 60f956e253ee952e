/* SPDX-License-Identifier: MIT */
/* Status codes of everything below the preload. CUDA's codes are translated into these in
 * driver/cuda.c and nowhere else; a caller that needs CUDA's own answer asks the original function.
 */
#ifndef VPMM_BASE_STATUS_H
#define VPMM_BASE_STATUS_H

#define VPMM_STATUS_LIST(X)                                                                        \
    X(OK, "success")                                                                               \
    X(NOT_READY, "not complete yet")                                                               \
    X(NOT_FOUND, "nothing fits")                                                                   \
    X(NO_SPACE, "no hole of the address space is large enough")                                    \
    X(NO_MEMORY, "out of device memory")                                                           \
    X(LIMITED, "more than may be held")                                                            \
    X(NO_METADATA, "out of host memory for metadata")                                              \
    X(NO_CONTEXT, "no current context")                                                            \
    X(CONTEXT_GONE, "the context was destroyed")                                                   \
    X(CAPTURED, "a stream capture forbids it")                                                     \
    X(NOT_SUPPORTED, "the driver or device cannot do it")                                          \
    X(INVALID, "invalid argument")                                                                 \
    X(SHUT_DOWN, "the driver has shut down")                                                       \
    X(BROKEN, "the device reported an error that stays")                                           \
    X(FAILED, "the driver failed")                                                                 \
    X(OCCUPIED, "another call of the same object is under way")                                    \
    X(BELOW_FLOOR, "the budget is smaller than what must be present at once")                      \
    X(OUT_OF_ORDER, "another order than the recorded one")                                         \
    X(NO_HOST_ROOM, "out of host memory")                                                          \
    X(UNSOUND, "a file does not hold what it should")

#define VPMM_STATUS_ENUM(name, text) VPMM_##name,
enum vpmm_status {
    VPMM_STATUS_LIST(VPMM_STATUS_ENUM) VPMM_STATUS_COUNT
};
#undef VPMM_STATUS_ENUM

/* Not in line: most calls of its callers do without it, and then without its registers and stack.
 */
#define VPMM_NOINLINE __attribute__((noinline))
/* In line: each caller has its own, made for the constants that it passes. */
#define VPMM_INLINE inline __attribute__((always_inline))
#define VPMM_MUST_CHECK __attribute__((warn_unused_result))

/* A short English text for `status`; never NULL; any thread, also in a signal handler. */
const char *vpmm_status_text(enum vpmm_status status);

#endif
