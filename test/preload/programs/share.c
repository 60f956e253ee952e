/* SPDX-License-Identifier: MIT */
/* A process that shares memory with others by legacy IPC, and does what it is told on standard
 * input, one command a line, each answered by one line. Blocks and imports are numbered from 0.
 * malloc N, async N         allocates N MiB and 13 bytes
 * free I                    frees block I
 * get I OFFSET              the code, and the handle of that address in hexadecimal digits
 * open HANDLE FLAGS         the code, and the number of the import with that address
 * close J, freeopen J       cuIpcCloseMemHandle, cuMemFree
 * fill b|o I BYTE           sets all bytes of a block or an import
 * read b|o I OFFSET         the byte there
 * range b|o I OFFSET        code, whether the base is right, and the bytes of cuMemGetAddressRange
 * ipc b|o I                 IS_LEGACY_CUDA_IPC_CAPABLE
 * mapping o I               whether MAPPING_BASE_ADDR and MAPPING_SIZE hold it
 * context o I               whether CU_POINTER_ATTRIBUTE_CONTEXT is the current context
 * access b|o I             the codes of cuMemGetAccess, cuMemSetAccess and cuMemUnmap
 * overlaps I K              whether blocks I and K have addresses in common
 * taken I                   whether none of a few blocks as large as I lies where I lies
 * withheld                  the code, and the bytes that are freed and open in another process
 * queue o I                 work on the import that completes only when something waits for it
 * device D                  another primary context, current from then on
 * detach                    no context is current from then on
 * reset                     its reset
 * stacks                    threads get the smallest stack from now on, unless they ask for another
 * fork                      a child that lives until its standard input ends; answers when it runs
 * break                     the device has an error that stays
 * leave                     returns from main */
#define _GNU_SOURCE
#include <vpmm/vpmm.h>

#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define ODD 13
#define BLOCKS 64
#define TRIES 8

/* Of the simulated device. */
void vpmm_sim_device_break(CUdevice device, CUresult code);

struct piece {
    CUdeviceptr address;
    size_t bytes;
};

static struct piece blocks[BLOCKS], imports[BLOCKS];
static unsigned n_blocks, n_imports;

static void tell(CUresult result)
{
    printf("%d\n", (int)result);
}

static void allocate(bool is_async, size_t mib)
{
    struct piece *block = &blocks[n_blocks++];
    block->bytes = mib * MIB + ODD;
    tell(is_async ? cuMemAllocAsync(&block->address, block->bytes, NULL)
                  : cuMemAlloc(&block->address, block->bytes));
}

static void get(unsigned number, size_t offset)
{
    CUipcMemHandle handle;
    unsigned char bytes[sizeof handle];
    CUresult result = cuIpcGetMemHandle(&handle, blocks[number].address + offset);
    printf("%d ", (int)result);
    memcpy(bytes, &handle, sizeof bytes);
    for (size_t i = 0; !result && i < sizeof bytes; i++)
        printf("%02x", bytes[i]);
    putchar('\n');
}

static unsigned number_of(CUdeviceptr address)
{
    for (unsigned i = 0; i < n_imports; i++)
        if (imports[i].address == address)
            return i;
    CUdeviceptr base;
    imports[n_imports].address = address;
    if (cuMemGetAddressRange(&base, &imports[n_imports].bytes, address))
        imports[n_imports].bytes = 0;
    return n_imports++;
}

static void open_handle(const char *digits, unsigned flags)
{
    CUipcMemHandle handle;
    unsigned char bytes[sizeof handle];
    CUdeviceptr address = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        unsigned byte = 0;
        (void)sscanf(digits + 2 * i, "%2x", &byte);
        bytes[i] = (unsigned char)byte;
    }
    memcpy(&handle, bytes, sizeof handle);
    CUresult result = cuIpcOpenMemHandle(&address, handle, flags);
    printf("%d %d\n", (int)result, result ? -1 : (int)number_of(address));
}

static void range(const struct piece *piece, size_t offset)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = cuMemGetAddressRange(&base, &bytes, piece->address + offset);
    printf("%d %d %zu\n", (int)result, base == piece->address, bytes);
}

static void read_byte(const struct piece *piece, size_t offset)
{
    unsigned char byte = 0;
    CUresult result = cuMemcpyDtoH(&byte, piece->address + offset, 1);
    printf("%d %d\n", (int)result, byte);
}

static void fill(const struct piece *piece, unsigned char byte)
{
    CUresult result = cuMemsetD8(piece->address, byte, piece->bytes);
    tell(result ? result : cuCtxSynchronize());
}

static void tell_ipc(const struct piece *piece)
{
    int ipc = -1;
    CUresult result = cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                            piece->address);
    printf("%d %d\n", (int)result, ipc);
}

static void tell_context(const struct piece *piece)
{
    CUcontext context = NULL;
    CUcontext current = NULL;
    CUresult result = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, piece->address);
    (void)cuCtxGetCurrent(&current);
    printf("%d %d\n", (int)result, context == current);
}

static void tell_mapping(const struct piece *piece)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result =
        cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, piece->address);
    if (!result)
        result = cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, piece->address);
    printf("%d %d\n", (int)result,
           base <= piece->address && base % (2 * MIB) == 0 && bytes % (2 * MIB) == 0 &&
               piece->address + piece->bytes <= base + bytes);
}

static bool overlap(const struct piece *one, const struct piece *other)
{
    return one->address < other->address + other->bytes &&
           other->address < one->address + one->bytes;
}

/* Not for a block that has come back: its pages may have moved into a region elsewhere. */
static void tell_taken(const struct piece *block)
{
    struct piece others[TRIES];
    bool is_taken = true;
    CUresult result = CUDA_SUCCESS;
    unsigned n = 0;
    while (n < TRIES && !result) {
        others[n].bytes = block->bytes;
        result = cuMemAlloc(&others[n].address, block->bytes);
        is_taken = is_taken && !result && !overlap(block, &others[n]);
        n += !result;
    }
    while (n-- > 0)
        (void)cuMemFree(others[n].address);
    printf("%d %d\n", (int)result, is_taken);
}

static void tell_withheld(void)
{
    vpmm_interface_fn *find = (vpmm_interface_fn *)dlsym(RTLD_DEFAULT, "vpmm_interface_1");
    struct vpmm_snapshot snapshot = {.size_bytes = sizeof snapshot};
    enum vpmm_result result = find ? find()->snapshot_take(0, &snapshot) : VPMM_NOT_LOADED;
    printf("%d %llu\n", (int)result, (unsigned long long)snapshot.withheld_bytes);
}

static void make_current(CUdevice device)
{
    CUcontext context;
    CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    tell(result ? result : cuCtxSetCurrent(context));
}

static void split(void)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        (void)close(ready[0]);
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        while (read(STDIN_FILENO, &byte, 1) > 0)
            continue;
        _exit(0);
    }
    (void)close(ready[1]);
    printf("%d %d\n", read(ready[0], &byte, 1) == 1 ? 0 : 1, (int)child);
    (void)close(ready[0]);
}

static void make_stacks_small(void)
{
    pthread_attr_t attributes;
    int has_failed = pthread_attr_init(&attributes);
    if (!has_failed)
        has_failed = pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    printf("%d\n", has_failed ? has_failed : pthread_setattr_default_np(&attributes));
}

static void use_as_mapping(const struct piece *piece)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    size_t bytes = (piece->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    unsigned long long flags;
    int get = (int)cuMemGetAccess(&flags, &access.location, piece->address);
    int set = (int)cuMemSetAccess(piece->address, bytes, &access, 1);
    printf("%d %d %d\n", get, set, (int)cuMemUnmap(piece->address, bytes));
}

static void act(char **words)
{
    const char *name = words[0];
    bool has_kind = words[1] && words[1][1] == '\0' && (words[1][0] == 'b' || words[1][0] == 'o');
    const struct piece *pieces = has_kind && words[1][0] == 'o' ? imports : blocks;
    char **rest = words + 1 + has_kind;
    unsigned long a = rest[0] ? strtoul(rest[0], NULL, 0) : 0;
    unsigned long b = rest[0] && rest[1] ? strtoul(rest[1], NULL, 0) : 0;
    if (strcmp(name, "malloc") == 0 || strcmp(name, "async") == 0)
        allocate(name[0] == 'a', a);
    else if (strcmp(name, "free") == 0)
        tell(cuMemFree(blocks[a].address));
    else if (strcmp(name, "get") == 0)
        get((unsigned)a, b);
    else if (strcmp(name, "open") == 0)
        open_handle(words[1], (unsigned)b);
    else if (strcmp(name, "close") == 0)
        tell(cuIpcCloseMemHandle(imports[a].address));
    else if (strcmp(name, "freeopen") == 0)
        tell(cuMemFree(imports[a].address));
    else if (strcmp(name, "fill") == 0)
        fill(&pieces[a], (unsigned char)b);
    else if (strcmp(name, "queue") == 0)
        tell(cuMemsetD8Async(pieces[a].address, 1, pieces[a].bytes, CU_STREAM_PER_THREAD));
    else if (strcmp(name, "read") == 0)
        read_byte(&pieces[a], b);
    else if (strcmp(name, "range") == 0)
        range(&pieces[a], b);
    else if (strcmp(name, "ipc") == 0)
        tell_ipc(&pieces[a]);
    else if (strcmp(name, "mapping") == 0)
        tell_mapping(&pieces[a]);
    else if (strcmp(name, "context") == 0)
        tell_context(&pieces[a]);
    else if (strcmp(name, "access") == 0)
        use_as_mapping(&pieces[a]);
    else if (strcmp(name, "overlaps") == 0)
        printf("%d\n", overlap(&blocks[a], &blocks[b]));
    else if (strcmp(name, "taken") == 0)
        tell_taken(&blocks[a]);
    else if (strcmp(name, "withheld") == 0)
        tell_withheld();
    else if (strcmp(name, "device") == 0)
        make_current((CUdevice)a);
    else if (strcmp(name, "detach") == 0)
        tell(cuCtxSetCurrent(NULL));
    else if (strcmp(name, "reset") == 0)
        tell(cuDevicePrimaryCtxReset(0));
    else if (strcmp(name, "stacks") == 0)
        make_stacks_small();
    else if (strcmp(name, "fork") == 0)
        split();
    else if (strcmp(name, "break") == 0)
        vpmm_sim_device_break(0, CUDA_ERROR_ILLEGAL_ADDRESS), tell(CUDA_SUCCESS);
    else
        printf("what is %s\n", name);
}

int main(void)
{
    char line[512];
    if (cuInit(0))
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        char *words[8] = {0};
        char *more = NULL;
        unsigned n = 0;
        for (char *word = strtok_r(line, " \n", &more); word && n < 7;
             word = strtok_r(NULL, " \n", &more))
            words[n++] = word;
        if (n && strcmp(words[0], "leave") == 0)
            return 0;
        if (n)
            act(words);
        (void)fflush(stdout);
    }
    return 0;
}
