/* SPDX-License-Identifier: MIT */
/* Memory pools: what each attribute says before and after each step, trimming, thresholds, access,
 * limits, the current pool, and pools destroyed early; for the default pool and the program's own.
 */
#include "conformance.cuh"

namespace {

cudaStream_t stream;

struct Attribute {
    const char *name;
    cudaMemPoolAttr attribute;
    bool is_wide;
};

const Attribute ATTRIBUTES[] = {
    {"follow event dependencies", cudaMemPoolReuseFollowEventDependencies, false},
    {"opportunistic", cudaMemPoolReuseAllowOpportunistic, false},
    {"internal dependencies", cudaMemPoolReuseAllowInternalDependencies, false},
    {"release threshold", cudaMemPoolAttrReleaseThreshold, true},
    {"reserved", cudaMemPoolAttrReservedMemCurrent, true},
    {"reserved, high", cudaMemPoolAttrReservedMemHigh, true},
    {"used", cudaMemPoolAttrUsedMemCurrent, true},
    {"used, high", cudaMemPoolAttrUsedMemHigh, true},
};

uint64_t attribute(cudaMemPool_t pool, const Attribute &a)
{
    uint64_t wide = 0;
    int narrow = 0;
    cudaError_t status =
        cudaMemPoolGetAttribute(pool, a.attribute, a.is_wide ? (void *)&wide : (void *)&narrow);
    if (status != cudaSuccess) {
        printf("%s: %s\n", a.name, code(status));
        (void)cudaGetLastError();
    }
    return a.is_wide ? wide : static_cast<uint64_t>(narrow);
}

/* A line for each, so that one that differs does not hide the others. */
void show(const char *when, cudaMemPool_t pool)
{
    for (const Attribute &a : ATTRIBUTES) {
        printf("%s, %s: %llu\n", when, a.name, static_cast<unsigned long long>(attribute(pool, a)));
    }
}

/* One block of each size at a time, then all of them. */
void fill_and_empty(cudaMemPool_t pool, cudaError_t (*make)(void **, size_t, cudaMemPool_t))
{
    void *blocks[5];
    for (size_t bytes : SIZES) {
        printf("%zu bytes\n", bytes);
        CALL(make(&blocks[0], bytes, pool));
        show("taken", pool);
        CALL(cudaFreeAsync(blocks[0], stream));
        show("freed", pool);
        CALL(cudaStreamSynchronize(stream));
        show("synchronised", pool);
        CALL(cudaMemPoolTrimTo(pool, 0));
        show("trimmed", pool);
    }
    for (int i = 0; i < 5; i++) {
        CALL(make(&blocks[i], SIZES[i], pool));
    }
    show("all taken", pool);
    for (void *p : blocks) {
        CALL(cudaFreeAsync(p, stream));
    }
    CALL(cudaStreamSynchronize(stream));
    show("all freed", pool);
}

void set_wide(cudaMemPool_t pool, cudaMemPoolAttr which, uint64_t value)
{
    printf("attribute %d to %llu\n", static_cast<int>(which),
           static_cast<unsigned long long>(value));
    CALL(cudaMemPoolSetAttribute(pool, which, &value));
}

void set_attributes(cudaMemPool_t pool)
{
    int on = 1, off = 0, odd = 7;
    for (int *value : {&off, &odd, &on}) {
        CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, value));
        CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, value));
        CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, value));
        show("set", pool);
    }
    for (uint64_t value : {uint64_t{0}, uint64_t{1}}) {
        set_wide(pool, cudaMemPoolAttrReservedMemHigh, value);
        set_wide(pool, cudaMemPoolAttrUsedMemHigh, value);
        set_wide(pool, cudaMemPoolAttrReservedMemCurrent, value);
        set_wide(pool, cudaMemPoolAttrUsedMemCurrent, value);
    }
    show("high marks reset", pool);
    CALL(cudaMemPoolSetAttribute(pool, static_cast<cudaMemPoolAttr>(99), &on));
    CALL(cudaMemPoolGetAttribute(pool, static_cast<cudaMemPoolAttr>(99), &odd));
}

void thresholds(cudaMemPool_t pool, cudaError_t (*make)(void **, size_t, cudaMemPool_t))
{
    void *p;
    for (uint64_t keep : {UINT64_MAX, uint64_t{32 * MIB}, uint64_t{0}}) {
        set_wide(pool, cudaMemPoolAttrReleaseThreshold, keep);
        CALL(make(&p, 64 * MIB, pool));
        CALL(cudaFreeAsync(p, stream));
        CALL(cudaStreamSynchronize(stream));
        show("synchronised", pool);
        for (size_t least : {128 * MIB, 48 * MIB, 2 * MIB, size_t{0}}) {
            CALL(cudaMemPoolTrimTo(pool, least));
            show("trimmed", pool);
        }
    }
}

void access(cudaMemPool_t pool)
{
    cudaMemAccessDesc description = {};
    cudaMemAccessFlags flags;
    cudaMemLocation here = {};
    here.type = cudaMemLocationTypeDevice;
    section("access");
    CALL(cudaMemPoolGetAccess(&flags, pool, &here));
    VALUE(flags);
    for (int mode : {cudaMemAccessFlagsProtNone, cudaMemAccessFlagsProtRead,
                     cudaMemAccessFlagsProtReadWrite}) {
        description.location = here;
        description.flags = static_cast<cudaMemAccessFlags>(mode);
        CALL(cudaMemPoolSetAccess(pool, &description, 1));
        CALL(cudaMemPoolGetAccess(&flags, pool, &here));
        VALUE(flags);
    }
    description.location.id = 99;
    CALL(cudaMemPoolSetAccess(pool, &description, 1));
}

/* The program's own pool becomes current, with a block of the old one alive, and goes again. */
void current()
{
    cudaMemPool_t standard, now, own = pool_make();
    void *p, *q;
    section("another current pool");
    MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
    CALL(cudaMallocAsync(&q, 16 * MIB, stream));
    CALL(cudaDeviceSetMemPool(0, own));
    CALL(cudaDeviceGetMemPool(&now, 0));
    ASK(now == own);
    CALL(cudaMallocAsync(&p, 16 * MIB, stream));
    show("own", own);
    CALL(cudaStreamSynchronize(stream));
    observe(p, p);
    CALL(cudaFreeAsync(q, stream));
    CALL(cudaFree(p));
    show("own", own);
    CALL(cudaMallocAsync(&p, 5 * MIB + 13, stream));
    CALL(cudaMemPoolDestroy(own));
    CALL(cudaDeviceGetMemPool(&now, 0));
    ASK(now == standard);
    CALL(cudaMemsetAsync(p, 1, 5 * MIB + 13, stream));
    CALL(cudaStreamSynchronize(stream));
    ASK(holds(p, 5 * MIB + 13, 1));
    CALL(cudaFreeAsync(p, stream));
    CALL(cudaMallocAsync(&p, 16 * MIB, stream));
    CALL(cudaStreamSynchronize(stream));
    observe(p, p);
    CALL(cudaFreeAsync(p, stream));
    CALL(cudaDeviceSetMemPool(0, standard));
    CALL(cudaDeviceSetMemPool(0, nullptr));
    CALL(cudaDeviceSetMemPool(99, standard));
    CALL(cudaMemPoolDestroy(standard));
    CALL(cudaStreamSynchronize(stream));
}

/* What a pool can be made with, and what one with a limit refuses. */
void creation()
{
    cudaMemPoolProps props = {};
    cudaMemPool_t pool = nullptr;
    void *p = nullptr, *q = nullptr;
    section("creation");
    CALL(cudaMemPoolCreate(&pool, &props));
    props.allocType = cudaMemAllocationTypePinned;
    CALL(cudaMemPoolCreate(&pool, &props));
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 99;
    CALL(cudaMemPoolCreate(&pool, &props));
    props.location.id = 0;
    for (cudaMemAllocationHandleType type :
         {cudaMemHandleTypeNone, cudaMemHandleTypePosixFileDescriptor}) {
        props.handleTypes = type;
        props.maxSize = 64 * MIB;
        CALL(cudaMemPoolCreate(&pool, &props));
        CALL(cudaMallocFromPoolAsync(&p, 40 * MIB, pool, stream));
        CALL(cudaMallocFromPoolAsync(&q, 40 * MIB, pool, stream));
        CALL(cudaMallocFromPoolAsync(&q, 16 * MIB, pool, stream));
        show("limited", pool);
        CALL(cudaStreamSynchronize(stream));
        observe(p, p);
        int fd = -1;
        CALL(
            cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
        ASK(fd >= 0);
        cudaMemPoolPtrExportData data;
        CALL(cudaMemPoolExportPointer(&data, p));
        CALL(cudaFreeAsync(p, stream));
        CALL(cudaFreeAsync(q, stream));
        CALL(cudaStreamSynchronize(stream));
        CALL(cudaMemPoolDestroy(pool));
    }
}

} /* namespace */

int main()
{
    begin();
    stream = stream_make(cudaStreamNonBlocking);
    auto from_pool = [](void **p, size_t bytes, cudaMemPool_t pool) {
        return cudaMallocFromPoolAsync(p, bytes, pool, stream);
    };
    auto from_current = [](void **p, size_t bytes, cudaMemPool_t) {
        return cudaMallocAsync(p, bytes, stream);
    };
    cudaMemPool_t standard, own = pool_make();
    MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
    section("the default pool");
    show("at first", standard);
    fill_and_empty(standard, from_current);
    set_attributes(standard);
    thresholds(standard, from_pool);
    section("an own pool");
    show("at first", own);
    fill_and_empty(own, from_pool);
    set_attributes(own);
    thresholds(own, from_pool);
    access(own);
    CALL(cudaMemPoolDestroy(own));
    current();
    creation();
    return 0;
}
