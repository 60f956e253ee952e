/* SPDX-License-Identifier: MIT */
/* The process's one machine and the environment it is made from. Must not give a forked child its
 * parent's machine. */
#define _GNU_SOURCE
#include "sim/libcuda/libcuda_machine.h"

#include "sim/libcuda/control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_config wanted;
static bool stubs;
static char *lookups_file; /* copied: the program may change its environment */
static int n_devices;
static pthread_once_t parsed = PTHREAD_ONCE_INIT;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct sim *) machine;
static atomic_bool forked;
static void (*_Atomic hook)(const char *name);

__attribute__((noreturn)) static void refuse(const char *name, const char *text)
{
    fprintf(stderr, "simulated driver: %s=%s makes no sense\n", name, text);
    abort();
}

static uint64_t number(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return standard;
    uint64_t value = strtoull(text, &end, 0);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        value <<= 10 * (unit - units + 1);
        end++;
    }
    if (*end)
        refuse(name, text);
    return value;
}

static void strictness(uint64_t level)
{
    for (int i = 0; i < SIM_MISUSE_COUNT; i++)
        wanted.actions[i] = level >= 2 ? SIM_STOP : SIM_ANSWER;
    wanted.actions[SIM_UNMAP_IN_USE] = SIM_STOP;
    wanted.actions[SIM_HANG] = SIM_STOP;
    wanted.actions[SIM_RACE] = SIM_STOP;
    wanted.actions[SIM_LOCK_HELD] = SIM_STOP;
    if (level >= 1)
        wanted.actions[SIM_CAPTURE_BROKEN] = wanted.actions[SIM_FREE_IN_USE] = SIM_STOP;
}

static void before_call(void *self, const char *name)
{
    (void)self;
    void (*now)(const char *) = atomic_load(&hook);
    if (now)
        now(name);
}

void vpmm_sim_hook_set(void (*wanted_hook)(const char *name))
{
    atomic_store(&hook, wanted_hook);
}

static void parse(void)
{
    sim_config_default(&wanted);
    wanted.before_call = before_call;
    n_devices = (int)number("VPMM_SIM_DEVICES", 1);
    wanted.n_devices = n_devices ? n_devices : 1;
    wanted.device_bytes = number("VPMM_SIM_BYTES", wanted.device_bytes);
    wanted.granularity = number("VPMM_SIM_GRANULARITY", wanted.granularity);
    wanted.driver_version = (int)number("VPMM_SIM_VERSION", SIMCUDA_VERSION);
    wanted.seed = number("VPMM_SIM_SEED", 1);
    wanted.has_bytes = number("VPMM_SIM_DATA", 1) != 0;
    wanted.eager = number("VPMM_SIM_EAGER", 1) != 0;
    wanted.host_thread = number("VPMM_SIM_HOST_THREAD", 1) != 0;
    wanted.has_vmm = number("VPMM_SIM_VMM", 1) != 0;
    wanted.has_peers = number("VPMM_SIM_PEERS", 1) != 0;
    wanted.reuses_early = number("VPMM_SIM_REUSE", 0) != 0;
    wanted.reuse_handles = number("VPMM_SIM_REUSE_HANDLES", 0) != 0;
    wanted.check_races = number("VPMM_SIM_RACES", 0) != 0;
    wanted.hang_ms = (unsigned)number("VPMM_SIM_HANG_MS", 20000);
    strictness(number("VPMM_SIM_STRICT", 0));
    stubs = number("VPMM_SIM_STUBS", 0) != 0;
    const char *lookups = getenv("VPMM_SIM_LOOKUPS");
    lookups_file = lookups ? strdup(lookups) : NULL;
}

static void fault_from_environment(struct sim *sim)
{
    const char *text = getenv("VPMM_SIM_FAULT");
    char name[64], how[16] = "";
    unsigned long long nth;
    int code;
    if (!text || !*text)
        return;
    int n = sscanf(text, "%63[^:]:%llu:%d:%15s", name, &nth, &code, how);
    if (n < 3 || (n == 4 && strcmp(how, "forever") != 0))
        refuse("VPMM_SIM_FAULT", text);
    sim_fault_set(sim, strcmp(name, "*") == 0 ? NULL : name, nth, (CUresult)code, n == 4);
}

static void child(void)
{
    if (atomic_load(&machine))
        atomic_store(&forked, true);
}

struct sim *simcuda_machine(void)
{
    return atomic_load(&forked) ? NULL : atomic_load(&machine);
}

CUresult simcuda_start(void)
{
    pthread_once(&parsed, parse);
    if (atomic_load(&forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (n_devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&starting);
    if (!atomic_load(&machine)) {
        struct sim *fresh = sim_create(&wanted);
        if (!fresh)
            refuse("VPMM_SIM_*", "(together)");
        fault_from_environment(fresh);
        pthread_atfork(NULL, NULL, child);
        atomic_store(&machine, fresh);
    }
    pthread_mutex_unlock(&starting);
    return CUDA_SUCCESS;
}

int simcuda_version(void)
{
    pthread_once(&parsed, parse);
    return wanted.driver_version;
}

bool simcuda_stubs(void)
{
    pthread_once(&parsed, parse);
    return stubs;
}

const char *simcuda_lookups_file(void)
{
    pthread_once(&parsed, parse);
    return lookups_file;
}
