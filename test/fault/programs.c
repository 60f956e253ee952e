/* SPDX-License-Identifier: MIT */
/* Ordinary programs: both kinds of memory in every spelling, pitch, queries, captures, contexts
 * that come and go, two devices, threads. None of them makes a call by name that the library makes,
 * so that a fault by name is the library's. */
#include "act.h"

#include "sim/libcuda/control.h"

#include <pthread.h>

/* Newer headers have it no more. */
CUresult cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);

static CUstream new_stream(unsigned flags)
{
    CUstream stream = NULL;
    STEP(cuStreamCreate(&stream, flags));
    return stream;
}

static void first(void)
{
    ENTER(0);
    struct block p = MAKE(PLAIN, 5, NULL);
    struct block q = MAKE(ASYNC, 3, NULL);
    CHECK(&p);
    CHECK(&q);
    DROP(ASYNC, &q, NULL);
    DROP(PLAIN, &p, NULL);
}

/* Live blocks between free ones, so that the next larger one has to be stitched. */
static void stitch(enum kind kind, CUstream stream)
{
    struct block p[5];
    for (int i = 0; i < 5; i++)
        p[i] = MAKE(kind, i % 2 ? 2 : 8, stream);
    for (int i = 0; i < 5; i += 2)
        DROP(kind, &p[i], stream);
    struct block large = MAKE(kind, 28, stream);
    CHECK(&p[1]);
    CHECK(&large);
    DROP(kind, &large, stream);
    struct block again = MAKE(kind, 28, stream);
    CHECK(&p[3]);
    CHECK(&again);
    DROP(kind, &again, stream);
    DROP(kind, &p[1], stream);
    DROP(kind, &p[3], stream);
}

static void plain(void)
{
    stitch(PLAIN, NULL);
}

static void async(void)
{
    stitch(ASYNC, new_stream(CU_STREAM_DEFAULT));
}

static void spellings(void)
{
    static const enum kind kinds[] = {ASYNC, ASYNC_PER_THREAD, FROM_POOL, FROM_POOL_PER_THREAD};
    CUstream stream = new_stream(CU_STREAM_DEFAULT);
    for (int i = 0; i < 4; i++) {
        struct block p = MAKE(kinds[i], 5, stream);
        struct block q = MAKE(kinds[i], 3, NULL);
        CHECK(&p);
        DROP(kinds[i], &p, stream);
        CHECK(&q);
        DROP(i % 2 ? PLAIN : kinds[i], &q, NULL);
    }
    struct block p = MAKE(PLAIN, 4, NULL);
    CHECK(&p);
    DROP(ASYNC, &p, stream);
}

/* What the pool does not use is what pitched memory needs; and a request that nobody can serve. */
static void full(void)
{
    CUdeviceptr pitched = 0;
    CUdeviceptr none = 0;
    size_t pitch = 0;
    struct block p = MAKE(PLAIN, 100, NULL);
    CHECK(&p);
    DROP(PLAIN, &p, NULL);
    STEP(cuMemAllocPitch(&pitched, &pitch, MIB, 200, 4));
    SILENT_STEP(cuMemAlloc(&none, 100 * MIB));
    STEP(cuMemFree(none));
    SILENT_STEP(cuMemAllocAsync(&none, 100 * MIB, NULL));
    STEP(cuMemFree(none));
    STEP(cuMemFree(pitched));
    struct block q = MAKE(ASYNC, 200, NULL);
    CHECK(&q);
    DROP(PLAIN, &q, NULL);
}

static void capture(void)
{
    CUgraph graph = NULL;
    CUdeviceptr node = 0;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = new_stream(CU_STREAM_DEFAULT);
    struct block p = MAKE(PLAIN, 5, NULL);
    struct block q = MAKE(ASYNC, 3, other);
    CHECK(&p);
    CHECK(&q);
    STEP(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    DROP(PLAIN, &p, NULL);
    DROP(ASYNC, &q, other);
    struct block r = MAKE(ASYNC, 7, other);
    STEP(cuMemAllocAsync(&node, 4 * MIB, stream));
    STEP(cuStreamEndCapture(stream, &graph));
    STEP(cuGraphDestroy(graph));
    struct block s = MAKE(PLAIN, 6, NULL);
    CHECK(&r);
    CHECK(&s);
    STEP(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    DROP(PLAIN, &s, NULL);
    STEP(cuStreamEndCapture(other, &graph));
    STEP(cuGraphDestroy(graph));
    DROP(ASYNC, &r, other);
}

static void contexts(void)
{
    CUcontext context = NULL;
    struct block kept = MAKE(ASYNC, 3, NULL);
    STEP(cuCtxCreate_v2(&context, 0, 0));
    struct block p = MAKE(PLAIN, 5, NULL);
    struct block q = MAKE(ASYNC, 5, NULL);
    CHECK(&p);
    CHECK(&q);
    STEP(cuCtxDestroy(context));
    DROP(PLAIN, &p, NULL);
    struct block r = MAKE(PLAIN, 7, NULL);
    CHECK(&kept);
    STEP(cuDevicePrimaryCtxReset(0));
    ENTER(0);
    DROP(PLAIN, &r, NULL);
    struct block s = MAKE(PLAIN, 9, NULL);
    CHECK(&s);
    DROP(PLAIN, &s, NULL);
    DROP(PLAIN, &kept, NULL);
    DROP(ASYNC, &q, NULL);
}

static void devices(void)
{
    CUcontext contexts[2] = {NULL};
    struct block p = MAKE(PLAIN, 5, NULL);
    STEP(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    STEP(cuDevicePrimaryCtxRetain(&contexts[1], 1));
    STEP(cuCtxSetCurrent(contexts[1]));
    struct block q = MAKE(ASYNC, 5, NULL);
    CHECK(&q);
    STEP(cuCtxSetCurrent(contexts[0]));
    CHECK(&p);
    DROP(PLAIN, &p, NULL);
    struct block r = MAKE(PLAIN, 3, NULL);
    CHECK(&r);
    DROP(PLAIN, &r, NULL);
    DROP(PLAIN, &q, NULL);
}

static void *work(void *unused)
{
    (void)unused;
    ENTER(0);
    struct block p = MAKE(PLAIN, 5, NULL);
    struct block q = MAKE(ASYNC_PER_THREAD, 3, NULL);
    CHECK(&p);
    DROP(PLAIN, &p, NULL);
    CHECK(&q);
    DROP(ASYNC_PER_THREAD, &q, NULL);
    struct block r = MAKE(ASYNC_PER_THREAD, 3, NULL);
    CHECK(&r);
    DROP(PLAIN, &r, NULL);
    return NULL;
}

static void thread(void)
{
    pthread_t id;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&id, NULL, work, NULL) != 0 || pthread_join(id, NULL) != 0)
            complain("no thread");
    }
}

static void queries(void)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUcontext context = NULL;
    CUmemoryPool pool = NULL;
    struct block p = MAKE(PLAIN, 5, NULL);
    struct block q = MAKE(ASYNC, 3, NULL);
    CHECK(&p);
    SILENT_STEP(cuMemGetAddressRange(&base, &bytes, p.address + MIB));
    if (transcript->answers[transcript->n - 1] == CUDA_SUCCESS &&
        (base != p.address || bytes != p.bytes))
        complain("a range is %#llx, %zu", (unsigned long long)base, bytes);
    STEP(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p.address));
    STEP(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q.address));
    STEP(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, q.address + MIB));
    DROP(PLAIN, &p, NULL);
    DROP(PLAIN, &p, NULL);
    DROP(ASYNC, &q, NULL);
    STEP(cuMemGetAddressRange(&base, &bytes, p.address));
}

#define DEVICE_MIB 1024

static const char *const as_it_is[] = {NULL};
static const char *const at_once[] = {"VPMM_SIM_EAGER", "1", NULL};
static const char *const two_devices[] = {"VPMM_SIM_DEVICES", "2", NULL};
static const char *const waiting_frees[] = {"VPMM_FREE_SYNC", "1", NULL};
static const char *const eager_pages[] = {"VPMM_PAGES", "8", "VPMM_EXTENT", "2", NULL};

const struct act acts[] = {
    {"first", as_it_is, first, DEVICE_MIB, true, false},
    {"first-eager", eager_pages, first, DEVICE_MIB, true, false},
    {"plain", as_it_is, plain, DEVICE_MIB, false, false},
    {"plain-waiting", waiting_frees, plain, DEVICE_MIB, false, false},
    {"async", as_it_is, async, DEVICE_MIB, false, false},
    {"spellings", as_it_is, spellings, DEVICE_MIB, false, false},
    {"full", at_once, full, 256, false, true},
    {"capture", as_it_is, capture, DEVICE_MIB, false, false},
    {"contexts", as_it_is, contexts, DEVICE_MIB, false, false},
    {"devices", two_devices, devices, DEVICE_MIB, false, false},
    {"thread", as_it_is, thread, DEVICE_MIB, true, false},
    {"queries", as_it_is, queries, DEVICE_MIB, false, false},
    {NULL, NULL, NULL, 0, false, false},
};
