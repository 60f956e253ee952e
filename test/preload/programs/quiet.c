/* SPDX-License-Identifier: MIT */
/* A program that has nothing to do with CUDA: prints what a preloaded library could have changed,
 * and then dies of SIGUSR1, as its default action wants. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct sigaction action;
    int n_files = 0, n_threads = 0, n_handled = 0;
    DIR *files = opendir("/proc/self/fd"), *threads = opendir("/proc/self/task");
    while (files && readdir(files))
        n_files++;
    while (threads && readdir(threads))
        n_threads++;
    for (int i = 1; i < 65; i++) {
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            n_handled++;
    }
    printf("files %d threads %d handled signals %d driver %d\n", n_files, n_threads, n_handled,
           dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) != NULL);
    (void)fflush(stdout);
    (void)raise(SIGUSR1);
    printf("not reached\n");
    return 0;
}
