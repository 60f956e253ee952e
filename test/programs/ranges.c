/* SPDX-License-Identifier: MIT */
/* What the driver says about an address: ranges, pointer attributes, and where a block ends. */
#include "truth.h"

#define BYTES (5 * MIB + 13)

static void range_of(const char *what, CUdeviceptr start, CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = cuMemGetAddressRange(&base, &bytes, address);
    printf("range of %s: %s", what, truth_code(result));
    if (result == CUDA_SUCCESS)
        printf(", at %lld, %zu bytes", (long long)(base - start), bytes);
    printf("\n");
}

static void number(const char *what, CUpointer_attribute attribute, CUdeviceptr address)
{
    uint64_t value = 0;
    CUresult result = cuPointerGetAttribute(&value, attribute, address);
    printf("%s: %s", what, truth_code(result));
    if (result == CUDA_SUCCESS)
        printf(" %llu", (unsigned long long)value);
    printf("\n");
}

/* For attributes that are addresses: where relative to `start`. */
static void place(const char *what, CUpointer_attribute attribute, CUdeviceptr address,
                  CUdeviceptr start)
{
    CUdeviceptr value = 0;
    CUresult result = cuPointerGetAttribute(&value, attribute, address);
    printf("%s: %s", what, truth_code(result));
    if (result == CUDA_SUCCESS)
        printf(" %lld", (long long)(value - start));
    printf("\n");
}

static void attributes(CUdeviceptr p, CUdeviceptr address)
{
    CUcontext current = NULL, owner = NULL;
    CUmemoryPool own = NULL, standard = NULL;
    MUST(cuCtxGetCurrent(&current));
    MUST(cuDeviceGetDefaultMemPool(&standard, 0));
    truth_answer("CONTEXT", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    ASK(owner == current);
    ASK(owner == NULL);
    number("MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    place("DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address, p);
    number("HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    number("SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    number("IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    number("DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    number("IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
    place("RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, p);
    number("RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    number("MAPPED", CU_POINTER_ATTRIBUTE_MAPPED, address);
    number("ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address);
    number("ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address);
    truth_answer("MEMPOOL_HANDLE",
                 cuPointerGetAttribute(&own, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    ASK(own == standard);
    ASK(own == NULL);
}

static void plural(CUdeviceptr address)
{
    CUpointer_attribute names[3] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned type = 77;
    size_t bytes = 77;
    int ordinal = 77;
    void *data[3] = {&type, &bytes, &ordinal};
    truth_answer("cuPointerGetAttributes", cuPointerGetAttributes(3, names, data, address));
    VALUE(type);
    VALUE(bytes);
    VALUE(ordinal);
}

static void block(const char *kind, CUdeviceptr p)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    PART(kind);
    range_of("the start", p, p);
    range_of("the middle", p, p + BYTES / 2);
    range_of("the last byte", p, p + BYTES - 1);
    ANSWER(cuMemGetAddressRange(&base, NULL, p + 100));
    ANSWER(cuMemGetAddressRange(NULL, &bytes, p + 100));
    ASK(base == p);
    VALUE(bytes);
    attributes(p, p);
    printf("of an interior address\n");
    attributes(p, p + 3 * MIB + 1);
    plural(p + 4096);
    ANSWER(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    ANSWER(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)p));
}

static void buffer_ids(CUdeviceptr a, CUdeviceptr b)
{
    unsigned long long id_a = 0, inside = 0, id_b = 0, after = 0;
    CUdeviceptr again;
    PART("BUFFER_ID");
    ANSWER(cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
    ANSWER(cuPointerGetAttribute(&inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 4 * MIB));
    ANSWER(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    ASK(id_a == inside);
    ASK(id_a == id_b);
    ANSWER(cuMemFree(a));
    MUST(cuMemAlloc(&again, BYTES));
    ANSWER(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
    ASK(after == id_a);
    MUST(cuMemFree(again));
}

static void elsewhere(CUdeviceptr freed)
{
    void *pinned;
    int local = 0;
    PART("not device memory");
    range_of("a freed block", freed, freed);
    number("MEMORY_TYPE of a freed block", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, freed);
    number("MEMORY_TYPE of the stack", CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
           (CUdeviceptr)(uintptr_t)&local);
    plural((CUdeviceptr)(uintptr_t)&local);
    MUST(cuMemHostAlloc(&pinned, 8192, 0));
    number("MEMORY_TYPE of pinned memory", CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
           (CUdeviceptr)(uintptr_t)pinned);
    range_of("pinned memory", (CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)pinned + 5);
    MUST(cuMemFreeHost(pinned));
    range_of("zero", 0, 0);
}

int main(void)
{
    CUdeviceptr p, q;
    unsigned on = 1;
    truth_start();
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemAllocAsync(&q, BYTES, NULL));
    MUST(cuStreamSynchronize(NULL));
    block("a block of cuMemAlloc", p);
    block("a block of cuMemAllocAsync", q);
    ANSWER(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    ANSWER(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    buffer_ids(p, q);
    MUST(cuMemFree(q));
    elsewhere(p);
    return 0;
}
