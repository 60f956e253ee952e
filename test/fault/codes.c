/* SPDX-License-Identifier: MIT */
#include "codes.h"

#include <string.h>

#define FAULT_CODE(name, word) {#name, CUDA_ERROR_##word, false},
#define FAULT_REFUSAL(name, word) {#name, CUDA_ERROR_##word, true},
const struct fault_code fault_codes[] = {
#include "codes.def"
    {NULL, CUDA_SUCCESS, false},
};

#define FAULT_LASTING(word) CUDA_ERROR_##word,
const CUresult lasting_codes[] = {
#include "codes.def"
    CUDA_SUCCESS,
};

static const char *const unfailing[] = {
#define FAULT_UNFAILING(name) #name,
#include "codes.def"
};

static const struct fault_code *find(const char *call)
{
    const struct fault_code *row = fault_codes;
    while (row->call && strcmp(row->call, call) != 0)
        row++;
    return row->call ? row : NULL;
}

CUresult code_likely(const char *call)
{
    const struct fault_code *row = find(call);
    return row ? row->code : CUDA_SUCCESS;
}

bool code_has(const char *call)
{
    for (size_t i = 0; i < sizeof unfailing / sizeof *unfailing; i++)
        if (strcmp(unfailing[i], call) == 0)
            return true;
    return find(call) != NULL;
}

bool code_is_refusal(const char *call, CUresult code)
{
    for (const struct fault_code *row = find(call); row && row->call; row++)
        if (strcmp(row->call, call) == 0 && row->code == code)
            return row->is_refusal;
    return false;
}

bool code_is_lasting(CUresult code)
{
    for (const CUresult *lasting = lasting_codes; *lasting; lasting++)
        if (*lasting == code)
            return true;
    return false;
}
