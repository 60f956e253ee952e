/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "reading.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

unsigned long secure;

/* Stands before the C library's, by the linker's --wrap. */
unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type)
{
    return type == AT_SECURE ? secure : __real_getauxval(type);
}

struct vpmm_config config;
struct vpmm_complaints complaints;

void read_these(const char *const *environment)
{
    memset(&config, 0x5a, sizeof config);
    memset(&complaints, 0x5a, sizeof complaints);
    vpmm_config_read(&config, &complaints, (char *const *)(uintptr_t)environment);
}

void read_one(const char *variable)
{
    char *text = strdup(variable);
    const char *const environment[] = {text, NULL};
    assert_non_null(text);
    read_these(environment);
    free(text);
}

void read_well(const char *variable)
{
    read_one(variable);
    if (complaints.n)
        fail_msg("%s: %s", variable, complaints.text[0]);
}

void assert_defaults(void)
{
    assert_int_equal(config.page_bytes, 0);
    assert_int_equal(config.min_bytes, 1);
    assert_int_equal(config.pages.value, 0);
    assert_false(config.pages.is_percent);
    assert_int_equal(config.va_bytes, (uint64_t)8 << 40);
    assert_int_equal(config.extent_pages_max, 0);
    assert_int_equal(config.slack.value, 256 << 20);
    assert_false(config.slack.is_percent);
    assert_true(config.slack_is_default);
    assert_int_equal(config.spare_percent, 18);
    assert_int_equal(config.limit.value, 0);
    assert_int_equal(config.idle_ms, 0);
    assert_int_equal(config.decay_ms, 2500);
    assert_int_equal(config.free_sync, VPMM_FREE_SYNC_SMALL);
    assert_true(config.ipc);
    assert_false(config.ipc_refuses_shared);
    assert_false(config.disable);
    assert_true(config.active);
    assert_int_equal(config.dump_signal, SIGUSR1);
    assert_int_equal(config.dump_format, VPMM_DUMP_TEXT);
    assert_string_equal(config.dump_path, "");
    assert_false(config.stats);
    assert_string_equal(config.stats_path, "");
    assert_false(config.stats_json);
    assert_int_equal(config.log_level, VPMM_LOG_WARN);
}
