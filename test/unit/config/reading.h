/* SPDX-License-Identifier: MIT */
/* Reads made-up environments, and knows what is in force when nothing is set. */
#ifndef VPMM_TEST_CONFIG_READING_H
#define VPMM_TEST_CONFIG_READING_H

#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* What the last reading gave. */
extern struct vpmm_config config;
extern struct vpmm_complaints complaints;
/* What the system says of the process: 1 for a setuid program. */
extern unsigned long secure;

void read_these(const char *const *environment);
/* Reads one variable alone; `read_well` fails when there is a complaint. */
void read_one(const char *variable);
void read_well(const char *variable);
void assert_defaults(void);

#endif
