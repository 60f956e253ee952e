/* SPDX-License-Identifier: MIT */
/* codes.def as arrays. */
#ifndef VPMM_TEST_FAULT_CODES_H
#define VPMM_TEST_FAULT_CODES_H

#include <cuda.h>

#include <stdbool.h>

struct fault_code {
    const char *call;
    CUresult code;
    bool is_refusal;
};
/* The rows of one call stand together; a row without a call ends them. */
extern const struct fault_code fault_codes[];
/* CUDA_SUCCESS ends them. */
extern const CUresult lasting_codes[];

/* The likely code of `call`; CUDA_SUCCESS where it has none. */
CUresult code_likely(const char *call);
/* Whether the table has the call, failing or unfailing. */
bool code_has(const char *call);
/* Whether the code blames what the program passed. */
bool code_is_refusal(const char *call, CUresult code);
/* Whether no later call succeeds after this code. */
bool code_is_lasting(CUresult code);

#endif
