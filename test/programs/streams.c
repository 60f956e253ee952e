/* SPDX-License-Identifier: MIT */
/* Streams: identity, and the order that the legacy stream imposes. An answer "not ready" stands
 * only where a closed gate makes it certain, an answer "ready" only after a synchronise. */
#include "truth.h"

#include <pthread.h>

static struct gate gate;
static CUdeviceptr block;

static unsigned long long id_of(CUstream stream)
{
    unsigned long long id = 0;
    MUST(cuStreamGetId(stream, &id));
    return id;
}

static CUstream stream_new(unsigned flags)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static void *id_in_thread(void *context)
{
    static unsigned long long ids[2];
    MUST(cuCtxSetCurrent(context));
    ids[0] = id_of(CU_STREAM_PER_THREAD);
    ids[1] = id_of(CU_STREAM_LEGACY);
    return ids;
}

static void identity(CUcontext context, CUcontext other)
{
    unsigned long long seen[32], legacy = id_of(CU_STREAM_LEGACY),
                                 own = id_of(CU_STREAM_PER_THREAD);
    bool unique = true;
    pthread_t thread;
    void *returned;
    PART("identity");
    for (int i = 0; i < 32; i++) {
        CUstream s = stream_new(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        seen[i] = id_of(s);
        for (int k = 0; k < i; k++)
            unique = unique && seen[k] != seen[i];
        MUST(cuStreamDestroy(s));
    }
    ASK(unique);
    ASK(id_of(NULL) == legacy);
    ASK(own == legacy);
    ASK(own == id_of(CU_STREAM_PER_THREAD));
    pthread_create(&thread, NULL, id_in_thread, context);
    pthread_join(thread, &returned);
    truth_ask("another thread has another per-thread stream",
              ((unsigned long long *)returned)[0] != own);
    truth_ask("another thread has the same legacy stream",
              ((unsigned long long *)returned)[1] == legacy);
    MUST(cuCtxSetCurrent(other));
    ASK(id_of(CU_STREAM_LEGACY) == legacy);
    ASK(id_of(CU_STREAM_PER_THREAD) == own);
    MUST(cuCtxSetCurrent(context));
}

static void properties(CUcontext context)
{
    CUstream s = stream_new(CU_STREAM_DEFAULT), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUcontext owner = NULL;
    unsigned flags = 99;
    int priority = 99;
    PART("properties");
    ANSWER(cuStreamGetFlags(s, &flags));
    VALUE(flags);
    ANSWER(cuStreamGetFlags(t, &flags));
    VALUE(flags);
    ANSWER(cuStreamGetPriority(s, &priority));
    VALUE(priority);
    ANSWER(cuStreamGetCtx(s, &owner));
    ASK(owner == context);
    ANSWER(cuStreamGetCtx(NULL, &owner));
    ASK(owner == context);
    ANSWER(cuStreamGetCtx(CU_STREAM_PER_THREAD, &owner));
    ASK(owner == context);
    ANSWER(cuStreamCreate(&s, 0x80));
    ANSWER(cuStreamCreate(NULL, 0));
    ANSWER(cuStreamQuery(t));
    ANSWER(cuStreamDestroy(t));
    ANSWER(cuStreamDestroy(NULL));
    ANSWER(cuStreamDestroy(CU_STREAM_LEGACY));
    ANSWER(cuStreamDestroy(CU_STREAM_PER_THREAD));
}

enum legacy_work {
    NOTHING,
    MEMSET,
    EVENT,
    ALLOC_ASYNC,
    FREE_ASYNC,
    FREE_ASYNC_OF_PLAIN
};

static CUdeviceptr legacy_do(enum legacy_work work, CUdeviceptr ordered, CUdeviceptr plain,
                             CUevent event)
{
    CUdeviceptr p = 0;
    switch (work) {
    case NOTHING:
        break;
    case MEMSET:
        ANSWER(cuMemsetD8Async(block, 1, 64, CU_STREAM_LEGACY));
        break;
    case EVENT:
        ANSWER(cuEventRecord(event, CU_STREAM_LEGACY));
        break;
    case ALLOC_ASYNC:
        ANSWER(cuMemAllocAsync(&p, 6 * MIB, CU_STREAM_LEGACY));
        break;
    case FREE_ASYNC:
        ANSWER(cuMemFreeAsync(ordered, CU_STREAM_LEGACY));
        break;
    case FREE_ASYNC_OF_PLAIN:
        ANSWER(cuMemFreeAsync(plain, CU_STREAM_LEGACY));
        break;
    }
    return p;
}

/* Blocking s1 is held; then something happens on the legacy stream; then s2 gets work. Is s2 held
 * too? `free_stream` finishes work that was queued after s2's, so that an s2 that is not held has
 * had its time. */
static void order(const char *name, enum legacy_work work, unsigned s2_flags)
{
    CUstream s1 = stream_new(CU_STREAM_DEFAULT), s2 = stream_new(s2_flags);
    CUstream free_stream = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ordered, plain, p;
    CUevent event;
    PART(name);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAllocAsync(&ordered, 6 * MIB, CU_STREAM_LEGACY));
    MUST(cuMemAlloc(&plain, 6 * MIB));
    MUST(cuMemsetD8Async(block + 128, 0, 64, s2));
    MUST(cuCtxSynchronize());
    gate_close(&gate, s1);
    p = legacy_do(work, ordered, plain, event);
    MUST(cuMemsetD8Async(block + 128, 2, 64, s2));
    for (int i = 0; i < 50; i++)
        MUST(cuMemsetD8Async(block + 256, 3, 64, free_stream));
    MUST(cuStreamSynchronize(free_stream));
    ANSWER(cuStreamQuery(s2));
    ANSWER(cuStreamQuery(s1));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(s2));
    MUST(cuCtxSynchronize());
    ANSWER(cuStreamQuery(CU_STREAM_LEGACY));
    if (p)
        MUST(cuMemFree(p));
    if (work != FREE_ASYNC)
        MUST(cuMemFree(ordered));
    if (work != FREE_ASYNC_OF_PLAIN)
        MUST(cuMemFree(plain));
    MUST(cuEventDestroy(event));
    MUST(cuStreamDestroy(s1));
    MUST(cuStreamDestroy(s2));
    MUST(cuStreamDestroy(free_stream));
}

static void legacy_waits(void)
{
    CUstream blocking = stream_new(CU_STREAM_DEFAULT), apart = stream_new(CU_STREAM_NON_BLOCKING);
    PART("what the legacy stream waits for");
    gate_close(&gate, blocking);
    MUST(cuMemsetD8Async(block, 1, 64, CU_STREAM_LEGACY));
    ANSWER(cuStreamQuery(CU_STREAM_LEGACY));
    MUST(cuMemsetD8Async(block, 1, 64, apart));
    ANSWER(cuStreamSynchronize(apart));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(CU_STREAM_LEGACY));
    gate_close(&gate, apart);
    MUST(cuMemsetD8Async(block, 1, 64, CU_STREAM_LEGACY));
    ANSWER(cuStreamSynchronize(CU_STREAM_LEGACY));
    ANSWER(cuStreamQuery(apart));
    gate_open(&gate);
    gate_close(&gate, CU_STREAM_PER_THREAD);
    MUST(cuMemsetD8Async(block, 1, 64, CU_STREAM_LEGACY));
    ANSWER(cuStreamQuery(CU_STREAM_LEGACY));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(CU_STREAM_LEGACY));
    MUST(cuStreamDestroy(blocking));
    MUST(cuStreamDestroy(apart));
}

int main(void)
{
    CUcontext context, other;
    truth_start();
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuCtxSetCurrent(context));
    gate_init(&gate);
    MUST(cuMemAlloc(&block, 4096));
    MUST(cuMemsetD8(block, 0, 4096));
    identity(context, other);
    properties(context);
    legacy_waits();
    order("nothing on the legacy stream", NOTHING, CU_STREAM_DEFAULT);
    order("memset on the legacy stream", MEMSET, CU_STREAM_DEFAULT);
    order("event on the legacy stream", EVENT, CU_STREAM_DEFAULT);
    order("cuMemAllocAsync on the legacy stream", ALLOC_ASYNC, CU_STREAM_DEFAULT);
    order("cuMemFreeAsync on the legacy stream", FREE_ASYNC, CU_STREAM_DEFAULT);
    order("cuMemFreeAsync of a cuMemAlloc block", FREE_ASYNC_OF_PLAIN, CU_STREAM_DEFAULT);
    order("memset on the legacy stream, s2 non-blocking", MEMSET, CU_STREAM_NON_BLOCKING);
    MUST(cuMemFree(block));
    return 0;
}
