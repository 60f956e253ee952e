/* SPDX-License-Identifier: MIT */
/* Asks cuGetProcAddress of the driver argv[1], in the form with argv[2] arguments, for each
 * "symbol:version:flags" that follows; prints the answer's code, the library it lies in, and
 * whether it differs from the answer before. */
#define _GNU_SOURCE
#include "reach.h"

#include <stdlib.h>

typedef int look4_fn(const char *symbol, void **function_out, int version, uint64_t flags);
typedef int look5_fn(const char *symbol, void **function_out, int version, uint64_t flags,
                     int *status_out);

int main(int n, char **arguments)
{
    int form = n > 2 ? atoi(arguments[2]) : 0;
    void *driver = n > 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *found =
        driver ? dlsym(driver, form == 5 ? "cuGetProcAddress_v2" : "cuGetProcAddress") : NULL;
    void *last = NULL;
    look4_fn *look4;
    look5_fn *look5;
    if (!found)
        return 1;
    memcpy(&look4, &found, sizeof look4);
    memcpy(&look5, &found, sizeof look5);
    for (int i = 3; i < n; i++) {
        char symbol[64] = "";
        int version = 0;
        unsigned flags = 0;
        void *answer = NULL;
        char *colon = strchr(arguments[i], ':');
        (void)snprintf(symbol, sizeof symbol, "%.*s", (int)(colon - arguments[i]), arguments[i]);
        if (sscanf(colon, ":%d:%u", &version, &flags) != 2)
            return 2;
        int code = form == 5 ? look5(symbol, &answer, version, flags, NULL)
                             : look4(symbol, &answer, version, flags);
        printf("%s %d %s %s\n", arguments[i], code, owner(answer),
               answer == last ? "same" : "other");
        last = answer;
    }
    (void)reach_by;
    return 0;
}
