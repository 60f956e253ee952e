/* SPDX-License-Identifier: MIT */
/* Why a file cannot be had, for people. Unlike strerror it asks no locale and allocates nothing. */
#ifndef VPMM_BASE_FAULT_H
#define VPMM_BASE_FAULT_H

/* What an errno of open or write means; static. */
const char *vpmm_fault_text(int number);

#endif
