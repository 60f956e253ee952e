/* SPDX-License-Identifier: MIT */
/* The smallest use of the public interface, in C and in C++. */
#include <vpmm/vpmm.h>

#include <stdio.h>

int main(void)
{
    struct vpmm_snapshot snapshot;
    const char *version = vpmm_loaded_version();
    snapshot.size_bytes = sizeof snapshot;
    printf("%s: %s\n", version ? version : "none",
           vpmm_result_text(vpmm_snapshot_take(0, &snapshot)));
    return 0;
}
