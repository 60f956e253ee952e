/* SPDX-License-Identifier: MIT */
/* Questions about blocks of every kind: many attributes at once, from every place in a block and
 * beside it, from another context, of memory pools, and after the end. */
#include "truth.h"

#define BYTES (7 * MIB + 5)

#define NAMES(X)                                                                                   \
    X(CONTEXT)                                                                                     \
    X(MEMORY_TYPE)                                                                                 \
    X(DEVICE_POINTER)                                                                              \
    X(HOST_POINTER)                                                                                \
    X(SYNC_MEMOPS)                                                                                 \
    X(BUFFER_ID)                                                                                   \
    X(IS_MANAGED)                                                                                  \
    X(DEVICE_ORDINAL)                                                                              \
    X(RANGE_START_ADDR)                                                                            \
    X(RANGE_SIZE)                                                                                  \
    X(MAPPED)                                                                                      \
    X(ALLOWED_HANDLE_TYPES)                                                                        \
    X(ACCESS_FLAGS)                                                                                \
    X(MEMPOOL_HANDLE)
#define ATTRIBUTE(name) CU_POINTER_ATTRIBUTE_##name,
#define INDEX(name) AT_##name,
enum {
    NAMES(INDEX) N_NAMES
};

struct answers {
    uint64_t values[N_NAMES];
};

static CUcontext first;
static CUmemoryPool standard;

static CUresult ask_all(struct answers *answers, CUdeviceptr address)
{
    CUpointer_attribute names[] = {NAMES(ATTRIBUTE)};
    void *data[N_NAMES];
    memset(answers, 0, sizeof(*answers));
    for (int i = 0; i < N_NAMES; i++)
        data[i] = &answers->values[i];
    return cuPointerGetAttributes(N_NAMES, names, data, address);
}

static void tell(const struct answers *answers, CUdeviceptr block, CUdeviceptr address)
{
    const uint64_t *values = answers->values;
    ASK(values[AT_CONTEXT] == (uintptr_t)first);
    ASK(values[AT_CONTEXT] == 0);
    VALUE(values[AT_MEMORY_TYPE]);
    ASK(values[AT_DEVICE_POINTER] == address);
    VALUE(values[AT_HOST_POINTER]);
    VALUE(values[AT_SYNC_MEMOPS]);
    VALUE(values[AT_IS_MANAGED]);
    VALUE((int)values[AT_DEVICE_ORDINAL]);
    ASK(values[AT_RANGE_START_ADDR] == block);
    VALUE(values[AT_RANGE_SIZE]);
    VALUE(values[AT_MAPPED]);
    VALUE(values[AT_ALLOWED_HANDLE_TYPES]);
    VALUE(values[AT_ACCESS_FLAGS]);
    ASK(values[AT_MEMPOOL_HANDLE] == 0);
    ASK(values[AT_MEMPOOL_HANDLE] == (uintptr_t)standard);
}

static void at(const char *where, CUdeviceptr block, CUdeviceptr address)
{
    struct answers answers;
    printf("%s\n", where);
    ANSWER(ask_all(&answers, address));
    tell(&answers, block, address);
}

/* One by one the same as at once. */
static void one_by_one(CUdeviceptr address)
{
    static const CUpointer_attribute names[] = {NAMES(ATTRIBUTE)};
    struct answers all;
    MUST(ask_all(&all, address));
    for (int i = 0; i < N_NAMES; i++) {
        uint64_t value = 0;
        CUresult result = cuPointerGetAttribute(&value, names[i], address);
        printf("attribute %d: %s, as at once? %s\n", (int)names[i], truth_code(result),
               value == all.values[i] ? "yes" : "no");
    }
}

static void block(const char *kind, CUdeviceptr p)
{
    CUmemGenericAllocationHandle handle;
    PART(kind);
    at("its start", p, p);
    at("within", p, p + 4 * MIB + 3);
    at("its last byte", p, p + BYTES - 1);
    one_by_one(p + 5);
    ANSWER(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(p + 4096)));
}

static uint64_t id_of(CUdeviceptr address)
{
    uint64_t id = 0;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
}

/* However often an address serves, each block has a number of its own. */
static void numbers(CUstream s)
{
    uint64_t seen[24];
    bool is_twice = false, is_steady = true;
    CUdeviceptr p;
    PART("BUFFER_ID of 24 blocks, one after the other");
    for (int i = 0; i < 24; i++) {
        if (i % 2)
            MUST(cuMemAlloc(&p, BYTES));
        else
            MUST(cuMemAllocAsync(&p, BYTES, s));
        seen[i] = id_of(p);
        is_steady = is_steady && seen[i] == id_of(p) && seen[i] == id_of(p + BYTES - 1);
        for (int j = 0; j < i; j++)
            is_twice = is_twice || seen[i] == seen[j];
        if (i % 3)
            MUST(cuMemFreeAsync(p, s));
        else
            MUST(cuMemFree(p));
    }
    ASK(is_twice);
    ASK(is_steady);
}

static void refused(CUdeviceptr p)
{
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    CUpointer_attribute twice[2] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    size_t one = 7, two = 7;
    void *data[2] = {&one, &two};
    PART("odd questions");
    ANSWER(cuPointerGetAttributes(0, &name, data, p));
    ANSWER(cuPointerGetAttributes(1, NULL, data, p));
    ANSWER(cuPointerGetAttributes(1, &name, NULL, p));
    ANSWER(cuPointerGetAttributes(2, twice, data, p));
    VALUE(one);
    VALUE(two);
    ANSWER(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)p));
}

int main(void)
{
    CUdevice device = truth_start();
    CUmemPoolProps props;
    CUmemoryPool own;
    CUcontext second;
    CUstream s;
    CUdeviceptr p, q, r;
    struct answers answers;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuDeviceGetDefaultMemPool(&standard, device));
    MUST(cuMemPoolCreate(&own, &props));
    MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemAllocAsync(&q, BYTES, s));
    MUST(cuMemAllocFromPoolAsync(&r, BYTES, own, s));
    MUST(cuStreamSynchronize(s));
    block("a block of cuMemAlloc", p);
    block("a block of cuMemAllocAsync", q);
    block("a block of a pool", r);
    refused(p);

    PART("in another context");
    MUST(cuCtxCreate_v2(&second, 0, device));
    at("a block of cuMemAlloc", p, p);
    at("a block of cuMemAllocAsync", q, q);
    MUST(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(first));

    PART("after the end");
    MUST(cuMemFreeAsync(q, s));
    MUST(cuMemFreeAsync(r, s));
    MUST(cuMemFree(p));
    MUST(cuStreamSynchronize(s));
    ANSWER(ask_all(&answers, p));
    ANSWER(ask_all(&answers, q));
    VALUE(answers.values[AT_RANGE_SIZE]);
    VALUE(answers.values[AT_MEMORY_TYPE]);
    VALUE((int)answers.values[AT_DEVICE_ORDINAL]);
    numbers(s);
    MUST(cuMemPoolDestroy(own));
    MUST(cuStreamDestroy(s));
    return 0;
}
