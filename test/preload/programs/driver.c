/* SPDX-License-Identifier: MIT */
/* An ordinary driver-API program that does what its arguments say, one after another, and prints
 * one line each. Blocks are numbered from 0 in the order of their allocation. init cuInit, the
 * primary context of device 0 made current malloc:N async:N fromdefault:N pitch:N     allocates N
 * MiB and 13 bytes (the last three on the legacy stream) free:I freeasync:I freeaddress:N frees a
 * block or any address range:I:N address:I:N                      cuMemGetAddressRange, or the
 * range attributes, N bytes into block I attributes:I    context, memory pool, IPC and buffer id of
 * block I retain:I info   cuMemRetainAllocationHandle, cuMemGetInfo (MiB) setpool         makes a
 * new pool the device's current one capture end     captures on a stream of its own, and ends that
 *   capturing:N     cuMemAllocAsync on that stream
 *   others          creates and launches what the pool does not serve
 *   rows:W:H:E      cuMemAllocPitch, its pitch, and the range seen from the second row
 *   reset           cuDevicePrimaryCtxReset
 *   total           cuMemGetInfo without the free bytes
 *   within:I        what a host function is told about block I
 *   small:N reserved  N blocks of 64 KiB, and what the default memory pool has reserved, and the
 *   most of that ever, in MiB
 *   trim            gives back what that pool has free
 *   signal          the action of SIGUSR1; own ignore raise: sets a handler, ignores it, raises it
 *   fault:NAME:NTH:CODE[:forever] struck:NAME   makes a call of the simulated device fail; tells on
 *                   standard error whether it did
 *   calls:NAME      how often the simulated device was asked for that
 *   fork:TEXT       from here on the parent waits for the child and does what follows too; the
 * child prints TEXT first */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define ODD 13
#define BLOCKS 64

static CUdeviceptr blocks[BLOCKS];
static int n_blocks;
static CUstream stream;
static const char *who = "";

static void tell(const char *what, CUresult result)
{
    printf("%s%s %d\n", who, what, (int)result);
}

static void start(void)
{
    CUcontext context;
    CUresult result = cuInit(0);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (!result)
        result = cuCtxSetCurrent(context);
    tell("init", result);
}

static void allocate(const char *kind, unsigned long mib)
{
    size_t bytes = mib * MIB + ODD, pitch;
    CUmemoryPool pool;
    CUdeviceptr address = 0;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (strcmp(kind, "malloc") == 0)
        result = cuMemAlloc(&address, bytes);
    else if (strcmp(kind, "async") == 0)
        result = cuMemAllocAsync(&address, bytes, NULL);
    else if (strcmp(kind, "capturing") == 0)
        result = cuMemAllocAsync(&address, bytes, stream);
    else if (strcmp(kind, "pitch") == 0)
        result = cuMemAllocPitch(&address, &pitch, MIB, mib, 4);
    else if (strcmp(kind, "fromdefault") == 0 && !cuDeviceGetDefaultMemPool(&pool, 0))
        result = cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
    if (!result && n_blocks < BLOCKS)
        blocks[n_blocks++] = address;
    tell(kind, result);
}

/* "WIDTH:HEIGHT:ELEMENT", in bytes, rows and bytes. */
static void rows(const char *text)
{
    char *end;
    size_t width = strtoull(text, &end, 0);
    size_t height = strtoull(end + 1, &end, 0);
    unsigned element = (unsigned)strtoul(end + 1, &end, 0);
    CUdeviceptr address = 0, base = 0;
    size_t pitch = 1, bytes = 0;
    CUresult result = cuMemAllocPitch(&address, &pitch, width, height, element);
    if (!result && n_blocks < BLOCKS)
        blocks[n_blocks++] = address;
    if (!result)
        result = cuMemGetAddressRange(&base, &bytes, address + pitch);
    printf("%srows %d pitch %zu range %zu %d\n", who, (int)result, pitch, bytes, base == address);
}

static void range(int block, unsigned long offset)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = cuMemGetAddressRange(&base, &bytes, blocks[block] + offset);
    printf("%srange %d %d %zu\n", who, (int)result, base == blocks[block], bytes);
}

static void address_attributes(int block, unsigned long offset)
{
    CUpointer_attribute wanted[2] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                     CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUdeviceptr base = 0, one = 0;
    size_t bytes = 0;
    void *values[2] = {&base, &bytes};
    CUresult first = cuPointerGetAttribute(&one, wanted[0], blocks[block] + offset);
    CUresult both = cuPointerGetAttributes(2, wanted, values, blocks[block] + offset);
    printf("%saddress %d %d %d %d %zu\n", who, (int)first, one == blocks[block], (int)both,
           base == blocks[block], bytes);
}

static void attributes(int block)
{
    CUcontext context = NULL, current = NULL;
    CUmemoryPool pool = NULL, default_pool = NULL;
    int ipc = -1;
    unsigned long long id = 0;
    CUresult result = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, blocks[block]);
    if (!result)
        result = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, blocks[block]);
    if (!result)
        result = cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       blocks[block]);
    if (!result)
        result = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[block]);
    (void)cuCtxGetCurrent(&current);
    (void)cuDeviceGetDefaultMemPool(&default_pool, 0);
    printf("%sattributes %d context=%s pool=%s ipc=%d id=%llu\n", who, (int)result,
           !context             ? "none"
           : context == current ? "current"
                                : "other",
           !pool                  ? "none"
           : pool == default_pool ? "default"
                                  : "other",
           ipc, id);
}

static void info(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = cuMemGetInfo(&free_bytes, &total_bytes);
    printf("%sinfo %d %zu %zu\n", who, (int)result, free_bytes / MIB, total_bytes / MIB);
}

static void retain(int block)
{
    CUmemGenericAllocationHandle handle;
    tell("retain", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)blocks[block]));
}

static void set_pool(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUresult result = cuMemPoolCreate(&pool, &properties);
    tell("setpool", result ? result : cuDeviceSetMemPool(0, pool));
}

static void capture(void)
{
    CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    tell("capture", result ? result : cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void answer(int number)
{
    (void)number;
    static const char text[] = "own handler\n";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
        _exit(125);
}

static void tell_signal(void)
{
    struct sigaction action;
    (void)sigaction(SIGUSR1, NULL, &action);
    printf("%ssignal %s\n", who,
           action.sa_handler == SIG_DFL   ? "default"
           : action.sa_handler == SIG_IGN ? "ignored"
           : action.sa_handler == answer  ? "own"
                                          : "other");
}

static void split(const char *text)
{
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        who = text;
        return;
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* "NAME:NTH:CODE", or with ":forever" behind it: asks the simulated device to fail. */
/* A stream, a graph and a context, none of which the pool serves. */
static void make_others(void)
{
    CUstream made = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUcontext current = NULL, other;
    tell("stream", cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    tell("begin", cuStreamBeginCapture(made, CU_STREAM_CAPTURE_MODE_RELAXED));
    tell("end", cuStreamEndCapture(made, &graph));
    tell("instantiate", cuGraphInstantiate(&exec, graph, 0));
    tell("launch", cuGraphLaunch(exec, made));
    (void)cuCtxGetCurrent(&current);
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    void *found = dlsym(RTLD_DEFAULT, "cuCtxCreate_v2");
    memcpy(&create, &found, sizeof create);
    tell("context", create(&other, 0, 0));
    (void)cuCtxSetCurrent(current);
}

static void set_fault(const char *text)
{
    void (*set)(const char *, unsigned long long, CUresult, _Bool);
    void *found = dlsym(RTLD_DEFAULT, "vpmm_sim_fault_set");
    char *name = strdup(text), *colon = name ? strchr(name, ':') : NULL, *end;
    if (!found || !colon)
        exit(125);
    *colon = '\0';
    unsigned long long nth = strtoull(colon + 1, &end, 10);
    CUresult code = (CUresult)strtol(end + 1, &end, 10);
    memcpy(&set, &found, sizeof set);
    set(name, nth, code, *end == ':');
}

static void tell_calls(const char *name)
{
    unsigned long long (*calls)(const char *);
    void *found = dlsym(RTLD_DEFAULT, "vpmm_sim_calls");
    if (!found)
        exit(125);
    memcpy(&calls, &found, sizeof calls);
    printf("calls %llu\n", calls(name));
}

static void tell_struck(const char *name)
{
    _Bool (*struck)(const char *);
    void *found = dlsym(RTLD_DEFAULT, "vpmm_sim_fault_struck");
    if (!found)
        exit(125);
    memcpy(&struck, &found, sizeof struck);
    fprintf(stderr, "struck %d\n", struck(name));
}

static void CUDA_CB ask_within(void *block)
{
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUresult range = cuMemGetAddressRange(&base, &bytes, *(CUdeviceptr *)block);
    CUresult retained = cuMemRetainAllocationHandle(&handle, (void *)*(CUdeviceptr *)block);
    printf("%swithin %d %d\n", who, (int)range, (int)retained);
}

static void tell_reserved(void)
{
    CUmemoryPool pool;
    cuuint64_t bytes = 0, high = 0;
    CUresult result = cuDeviceGetDefaultMemPool(&pool, 0);
    if (!result)
        result = cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    if (!result)
        result = cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high);
    printf("%sreserved %d %zu %zu\n", who, (int)result, (size_t)bytes / MIB, (size_t)high / MIB);
}

static void trim(void)
{
    CUmemoryPool pool;
    CUresult result = cuCtxSynchronize();
    if (!result)
        result = cuDeviceGetDefaultMemPool(&pool, 0);
    tell("trim", result ? result : cuMemPoolTrimTo(pool, 0));
}

static void allocate_small(unsigned long n)
{
    CUresult result = CUDA_SUCCESS;
    for (CUdeviceptr address; n > 0 && !result; n--) {
        result = cuMemAllocAsync(&address, MIB / 16, NULL);
        if (!result && n_blocks < BLOCKS)
            blocks[n_blocks++] = address;
    }
    tell("small", result);
}

static int ask(const char *name, unsigned long a)
{
    size_t total_bytes = 0;
    if (strcmp(name, "total") == 0) {
        CUresult result = cuMemGetInfo(NULL, &total_bytes);
        printf("%stotal %d %zu\n", who, (int)result, total_bytes / MIB);
    } else if (strcmp(name, "within") == 0) {
        CUresult launched = cuLaunchHostFunc(NULL, ask_within, &blocks[a]);
        CUresult waited = cuCtxSynchronize();
        tell("launch", launched);
        tell("wait", waited);
    } else if (strcmp(name, "reserved") == 0) {
        tell_reserved();
    } else if (strcmp(name, "trim") == 0) {
        trim();
    } else if (strcmp(name, "small") == 0) {
        allocate_small(a);
    } else {
        return 0;
    }
    return 1;
}

static void act(const char *name, const char *rest)
{
    const char *second = rest ? strchr(rest, ':') : NULL;
    unsigned long a = rest ? strtoul(rest, NULL, 0) : 0,
                  b = second ? strtoul(second + 1, NULL, 0) : 0;
    CUgraph graph;
    if (strcmp(name, "init") == 0)
        start();
    else if (strcmp(name, "free") == 0)
        tell(name, cuMemFree(blocks[a]));
    else if (strcmp(name, "freeasync") == 0)
        tell(name, cuMemFreeAsync(blocks[a], NULL));
    else if (strcmp(name, "freeaddress") == 0)
        tell(name, cuMemFree(a));
    else if (strcmp(name, "range") == 0)
        range((int)a, b);
    else if (strcmp(name, "address") == 0)
        address_attributes((int)a, b);
    else if (strcmp(name, "attributes") == 0)
        attributes((int)a);
    else if (strcmp(name, "retain") == 0)
        retain((int)a);
    else if (strcmp(name, "info") == 0)
        info();
    else if (strcmp(name, "setpool") == 0)
        set_pool();
    else if (strcmp(name, "capture") == 0)
        capture();
    else if (strcmp(name, "end") == 0)
        tell(name, cuStreamEndCapture(stream, &graph));
    else if (strcmp(name, "reset") == 0)
        tell(name, cuDevicePrimaryCtxReset(0));
    else if (strcmp(name, "signal") == 0)
        tell_signal();
    else if (strcmp(name, "own") == 0)
        (void)signal(SIGUSR1, answer);
    else if (strcmp(name, "ignore") == 0)
        (void)signal(SIGUSR1, SIG_IGN);
    else if (strcmp(name, "raise") == 0)
        (void)raise(SIGUSR1);
    else if (strcmp(name, "others") == 0)
        make_others();
    else if (strcmp(name, "rows") == 0)
        rows(rest);
    else if (strcmp(name, "fault") == 0)
        set_fault(rest);
    else if (strcmp(name, "struck") == 0)
        tell_struck(rest);
    else if (strcmp(name, "calls") == 0)
        tell_calls(rest);
    else if (strcmp(name, "fork") == 0)
        split(rest);
    else if (!ask(name, a))
        allocate(name, a);
}

int main(int n, char **arguments)
{
    for (int i = 1; i < n; i++) {
        char name[32];
        const char *colon = strchr(arguments[i], ':');
        int length = colon ? (int)(colon - arguments[i]) : (int)strlen(arguments[i]);
        (void)snprintf(name, sizeof name, "%.*s", length, arguments[i]);
        act(name, colon ? colon + 1 : NULL);
        (void)fflush(stdout);
    }
    return 0;
}
