/* SPDX-License-Identifier: MIT */
/* The side door for tests. Must not make the machine: before cuInit it does nothing. */
#include "sim/libcuda/libcuda_machine.h"

#include "sim/libcuda/control.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void vpmm_sim_fault_set(const char *name, uint64_t nth, CUresult code, bool forever)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_fault_set(sim, name, nth, code, forever);
}

void vpmm_sim_fault_clear(const char *name)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_fault_clear(sim, name);
}

bool vpmm_sim_fault_struck(const char *name)
{
    struct sim *sim = simcuda_machine();
    return sim && sim_fault_struck(sim, name);
}

uint64_t vpmm_sim_calls(const char *name)
{
    struct sim *sim = simcuda_machine();
    return sim ? sim_calls(sim, name) : 0;
}

void vpmm_sim_calls_reset(void)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_calls_reset(sim);
}

void vpmm_sim_live_counts(struct sim_counts *counts_out)
{
    struct sim *sim = simcuda_machine();
    memset(counts_out, 0, sizeof(*counts_out));
    if (sim)
        sim_live_counts(sim, counts_out);
}

uint64_t vpmm_sim_misuse_count(enum sim_misuse misuse)
{
    struct sim *sim = simcuda_machine();
    return sim ? sim_misuse_count(sim, misuse) : 0;
}

void vpmm_sim_action_set(enum sim_misuse misuse, enum sim_action action)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_action_set(sim, misuse, action);
}

void vpmm_sim_device_break(CUdevice device, CUresult code)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_device_break(sim, device, code);
}

void vpmm_sim_shut_down(void)
{
    struct sim *sim = simcuda_machine();
    if (sim)
        sim_shut_down(sim);
}

bool vpmm_sim_step(void)
{
    struct sim *sim = simcuda_machine();
    return sim && sim_step(sim);
}

uint64_t vpmm_sim_drain(void)
{
    struct sim *sim = simcuda_machine();
    return sim ? sim_drain(sim) : 0;
}

bool vpmm_sim_peek(CUdevice device, CUdeviceptr address, void *bytes_out, size_t bytes)
{
    struct sim *sim = simcuda_machine();
    return sim && sim_peek(sim, device, address, bytes_out, bytes);
}

CUresult vpmm_sim_launch(CUstream stream, const struct sim_kernel *kernel)
{
    struct sim *sim = simcuda_machine();
    return sim ? sim_launch(sim, stream, kernel) : CUDA_ERROR_NOT_INITIALIZED;
}

bool vpmm_sim_read(struct sim_view *view, CUdeviceptr address, void *bytes_out, size_t bytes)
{
    return sim_read(view, address, bytes_out, bytes);
}

bool vpmm_sim_write(struct sim_view *view, CUdeviceptr address, const void *bytes, size_t n_bytes)
{
    return sim_write(view, address, bytes, n_bytes);
}

struct vpmm_sim_spin {
    struct sim_range range;
    unsigned char byte;
    atomic_bool released, done;
};

static bool spin_ready(struct sim_view *view, void *argument)
{
    struct vpmm_sim_spin *spin = argument;
    (void)view;
    return atomic_load(&spin->released);
}

static void spin_run(struct sim_view *view, void *argument)
{
    struct vpmm_sim_spin *spin = argument;
    unsigned char bytes[4096];
    memset(bytes, spin->byte, sizeof(bytes));
    for (uint64_t at = 0; at < spin->range.bytes; at += sizeof(bytes)) {
        uint64_t left = spin->range.bytes - at;
        size_t n = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
        if (!sim_write(view, spin->range.address + at, bytes, n))
            break;
    }
    atomic_store(&spin->done, true);
}

struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte)
{
    struct sim *sim = simcuda_machine();
    struct vpmm_sim_spin *spin = sim ? calloc(1, sizeof(*spin)) : NULL;
    if (!spin)
        return NULL;
    spin->range = (struct sim_range){address, bytes, true};
    spin->byte = byte;
    struct sim_kernel kernel = {.name = "spin",
                                .run = spin_run,
                                .ready = spin_ready,
                                .argument = spin,
                                .ranges = &spin->range,
                                .n_ranges = bytes ? 1 : 0};
    if (sim_launch(sim, stream || !per_thread ? stream : CU_STREAM_PER_THREAD, &kernel) ==
        CUDA_SUCCESS)
        return spin;
    free(spin);
    return NULL;
}

void vpmm_sim_spin_release(struct vpmm_sim_spin *spin)
{
    atomic_store(&spin->released, true);
}

bool vpmm_sim_spin_done(const struct vpmm_sim_spin *spin)
{
    return atomic_load(&spin->done);
}
