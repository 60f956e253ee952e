/* SPDX-License-Identifier: MIT */
/* The side door of the fake libcuda.so.1: what a test may do to the simulated machine of its own
 * process. Exported; a program finds the functions with dlsym (it includes this header for their
 * types only) or links the library. All need a cuInit before, except where noted; without one they
 * do nothing and answer zero. */
#ifndef VPMM_SIM_LIBCUDA_CONTROL_H
#define VPMM_SIM_LIBCUDA_CONTROL_H

#include "sim/engine.h"

/* As sim_fault_set() and its neighbours. */
void vpmm_sim_fault_set(const char *name, uint64_t nth, CUresult code, bool forever);
void vpmm_sim_fault_clear(const char *name);
bool vpmm_sim_fault_struck(const char *name);
uint64_t vpmm_sim_calls(const char *name);
void vpmm_sim_calls_reset(void);
void vpmm_sim_live_counts(struct sim_counts *counts_out);
uint64_t vpmm_sim_misuse_count(enum sim_misuse misuse);
void vpmm_sim_action_set(enum sim_misuse misuse, enum sim_action action);
void vpmm_sim_device_break(CUdevice device, CUresult code);
void vpmm_sim_shut_down(void);

/* `hook` is called before each call proper, by the calling thread, with CUDA's name of it: it may
 * act as another thread would (calls that it makes itself do not come here). NULL: none. Before or
 * after cuInit. */
void vpmm_sim_hook_set(void (*hook)(const char *name));

/* As sim_step(), sim_drain() and sim_peek(). */
bool vpmm_sim_step(void);
uint64_t vpmm_sim_drain(void);
bool vpmm_sim_peek(CUdevice device, CUdeviceptr address, void *bytes_out, size_t bytes);

/* As sim_launch(), sim_read() and sim_write(). */
CUresult vpmm_sim_launch(CUstream stream, const struct sim_kernel *kernel);
bool vpmm_sim_read(struct sim_view *view, CUdeviceptr address, void *bytes_out, size_t bytes);
bool vpmm_sim_write(struct sim_view *view, CUdeviceptr address, const void *bytes, size_t n_bytes);

/* A kernel on `stream` that runs until it is released and then writes `byte` over a range (none
 * where `bytes` is 0). `per_thread`: NULL is the thread's own stream. NULL when it could not be
 * queued. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);
/* Lets it end. `spin` stays valid while the process lives. */
void vpmm_sim_spin_release(struct vpmm_sim_spin *spin);
/* Whether its write has been done. */
bool vpmm_sim_spin_done(const struct vpmm_sim_spin *spin);

#endif
