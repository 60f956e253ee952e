/* SPDX-License-Identifier: MIT */
/* An ordinary program that prints the same whether or not a request found memory. It allocates,
 * fills, reads back and frees on several threads, cancels one in the middle, and raises SIGUSR1
 * wherever somebody in the process answers that signal.
 *
 * worker [lock | file | cut FILE]: lock makes all of its memory stay in memory, as far as it may;
 * file writes a file of its own and prints what is in it at the end; cut makes FILE empty in the
 * middle of the work. */
#define _GNU_SOURCE
#include <cuda.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define N_THREADS 3
#define N_ROUNDS 40
#define N_CUT_ROUNDS 3000
#define TEXT "what the program wrote itself\n"

static CUcontext context;

static void raise_if_answered(void)
{
    struct sigaction action;
    if (sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN)
        (void)raise(SIGUSR1);
}

/* No memory is an answer like any other. */
static bool has_served(CUresult result)
{
    if (result && result != CUDA_ERROR_OUT_OF_MEMORY) {
        printf("unexpected %d\n", (int)result);
        exit(3);
    }
    return result == CUDA_SUCCESS;
}

static void must(CUresult result)
{
    if (!has_served(result)) {
        printf("no memory\n");
        exit(4);
    }
}

static void use(bool is_async, size_t bytes, unsigned char byte)
{
    CUdeviceptr block;
    unsigned char seen = (unsigned char)~byte;
    if (!has_served(is_async ? cuMemAllocAsync(&block, bytes, NULL) : cuMemAlloc(&block, bytes)))
        return;
    must(cuMemsetD8Async(block + bytes - 1, byte, 1, NULL));
    must(cuMemcpyDtoH(&seen, block + bytes - 1, 1));
    if (seen != byte)
        printf("read %u for %u\n", seen, byte);
    must(is_async ? cuMemFreeAsync(block, NULL) : cuMemFree(block));
}

static void *work(void *number)
{
    must(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < N_ROUNDS; i++)
        use(i % 2, (i * 7 % 23 + 1) * MIB / 2 + (size_t)number, (unsigned char)i);
    return NULL;
}

/* Cancelled already when it begins; only a call of its own may end it. */
static void *be_cancelled(void *unused)
{
    CUdeviceptr block;
    (void)unused;
    must(cuCtxSetCurrent(context));
    (void)pthread_cancel(pthread_self());
    if (has_served(cuMemAlloc(&block, 40 * MIB)))
        must(cuMemFree(block));
    pthread_testcancel();
    return &context;
}

static void run(void *(*body)(void *), unsigned n, const void *expected)
{
    pthread_t threads[N_THREADS];
    bool is_made[N_THREADS] = {false};
    for (size_t i = 0; i < n; i++)
        is_made[i] = pthread_create(&threads[i], NULL, body, (void *)i) == 0;
    for (unsigned i = 0; i < n; i++) {
        void *result = NULL;
        if (is_made[i] && (pthread_join(threads[i], &result) != 0 || result != expected))
            printf("a thread ended otherwise\n");
    }
}

/* The lowest number that is free may be that of standard error. */
static void write_own_file(int *fd_out)
{
    char name[] = "/tmp/trust-XXXXXX";
    *fd_out = mkstemp(name);
    if (*fd_out >= 0 && write(*fd_out, TEXT, sizeof TEXT - 1) > 0)
        (void)unlink(name);
}

static void print_own_file(int fd)
{
    char text[4096] = "";
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text, 0);
    printf("own file: %.*s\n", n < 0 ? 0 : (int)n, text);
}

static void cut(const char *file)
{
    CUdeviceptr block;
    must(cuMemAlloc(&block, 8 * MIB));
    must(cuMemFree(block));
    (void)!truncate(file, 0);
    for (unsigned i = 0; i < N_CUT_ROUNDS; i++)
        use(i % 2, 8 * MIB, 1);
}

__attribute__((destructor)) static void end(void)
{
    raise_if_answered();
}

int main(int n, char **arguments)
{
    int own = -1;
    if (n > 1 && strcmp(arguments[1], "file") == 0)
        write_own_file(&own);
    if (n > 1 && strcmp(arguments[1], "lock") == 0)
        (void)mlockall(MCL_FUTURE);
    raise_if_answered();
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    raise_if_answered();
    run(be_cancelled, 1, PTHREAD_CANCELED);
    raise_if_answered();
    run(work, N_THREADS, NULL);
    if (n > 2 && strcmp(arguments[1], "cut") == 0)
        cut(arguments[2]);
    raise_if_answered();
    if (own >= 0)
        print_own_file(own);
    printf("done\n");
    if (atexit(raise_if_answered) != 0)
        return 5;
    return 0;
}
