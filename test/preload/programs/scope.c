/* SPDX-License-Identifier: MIT */
/* Look-ups whose answer depends on who asks, and the state that dlerror reports. Preloaded or not,
 * the same must be printed. Built with -DPROGRAM, -DFIRST and -DSECOND (two libraries that the
 * program links, in that order) and -DHIDDEN (one that it opens, whose name for itself nobody else
 * can see). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int probe(void);
int probe_next(void);
int find_self(void);
int hidden_from_others(void);

#ifndef SECOND
static int call(void *found)
{
    int (*function)(void);
    if (!found)
        return -1;
    memcpy(&function, &found, sizeof function);
    return function();
}
#endif

#ifdef FIRST
int probe(void)
{
    return 1;
}
int probe_next(void)
{
    return call(dlsym(RTLD_NEXT, "probe"));
}
#endif

#ifdef SECOND
int probe(void)
{
    return 2;
}
#endif

#ifdef HIDDEN
int hidden_from_others(void)
{
    return 3;
}
int find_self(void)
{
    return call(dlsym(RTLD_DEFAULT, "hidden_from_others"));
}
#endif

#ifdef PROGRAM
/* The last part of the message: the first names the file. */
static const char *error(void)
{
    const char *text = dlerror();
    const char *colon = text ? strstr(text, "undefined symbol") : NULL;
    return colon ? colon : text ? "some error" : "no error";
}

int main(int n, char **arguments)
{
    if (n != 3)
        return 2;
    printf("next of first %d\n", probe_next());
    printf("default %d\n", call(dlsym(RTLD_DEFAULT, "probe")));
    void *hidden = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    printf("self %d\n", hidden ? call(dlsym(hidden, "find_self")) : -2);
    printf("default in program %d\n", call(dlsym(RTLD_DEFAULT, "hidden_from_others")));
    printf("1 %s\n", error());
    printf("2 %s\n", error());
    printf("missing %d\n", dlsym(hidden, "cuMemAlloc_v2") != NULL);
    printf("3 %s\n", error());
    void *driver = dlopen(arguments[2], RTLD_NOW);
    (void)dlsym(hidden, "nothing_of_this_name");
    printf("found %d\n", driver && dlsym(driver, "cuMemAlloc_v2") != NULL);
    printf("4 %s\n", error());
    (void)dlsym(hidden, "nothing_of_this_name");
    printf("found %d\n", driver && dlsym(driver, "cuInit") != NULL);
    printf("5 %s\n", error());
    (void)dlsym(hidden, "cuMemFree_v2");
    printf("6 %s\n", error());
    printf("version %d\n", dlvsym(RTLD_DEFAULT, "dlsym", "NO_SUCH_VERSION") != NULL);
    return 0;
}
#endif
