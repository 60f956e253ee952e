/* SPDX-License-Identifier: MIT */
/* The functions of vpmm.h for weights larger than their budget, as this library has them under the
 * same names. They are found through the table of interface.c alone, and must not be exported. */
#ifndef VPMM_PRELOAD_WEIGHTS_H
#define VPMM_PRELOAD_WEIGHTS_H

#include "vpmm/vpmm.h"

#endif
