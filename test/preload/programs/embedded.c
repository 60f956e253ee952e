/* SPDX-License-Identifier: MIT */
/* Opens the library argv[1], which has a CUDA runtime inside, and calls its function
 * argv[2](&handle, 2 MiB): enough to make that runtime look up its driver functions. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int n, char **arguments)
{
    void *library = n == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *found = library ? dlsym(library, arguments[2]) : NULL;
    int (*function)(void **, unsigned long);
    void *handle = NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    memcpy(&function, &found, sizeof function);
    printf("result %d\n", function(&handle, 2ul << 20));
    return 0;
}
