/* SPDX-License-Identifier: MIT */
/* What happens to a process from its start to its end. The first argument names a scene; calls of
 * interest print one line each, which bare CUDA prints too. Built for per-thread default streams:
 * NULL is the thread's own stream. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define N_THREADS 32
#define N_STREAMS 4000
#define N_WARM 1000
#define PATIENCE_MS 60000

/* Of the simulated device. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);
void vpmm_sim_spin_release(struct vpmm_sim_spin *spin);
uint64_t vpmm_sim_calls(const char *name);
void vpmm_sim_calls_reset(void);

static CUcontext context;
static char **command;

static CUresult tell(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
    (void)fflush(stdout);
    return result;
}

static void must(CUresult result)
{
    if (result && tell("unexpected", result))
        exit(1);
}

static void start(void)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
}

/* ---- memory that goes back ---- */

/* `blocked_out`, or NULL: the signals that our thread blocks. */
static unsigned count_tasks(char blocked_out[128])
{
    unsigned n = 0;
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL) {
        char path[300], line[128], signals[64] = "";
        bool is_ours = false;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        n += file != NULL;
        while (file && fgets(line, sizeof line, file)) {
            is_ours |= strcmp(line, "Name:\tvpmm-idle\n") == 0;
            (void)sscanf(line, "SigBlk: %63s", signals);
        }
        if (is_ours && blocked_out)
            (void)strcpy(blocked_out, signals);
        if (file)
            (void)fclose(file);
    }
    if (folder)
        (void)closedir(folder);
    return n;
}

static void tell_threads(unsigned before)
{
    char blocked[128] = "none";
    printf("threads more: %u, their blocked signals: ", count_tasks(blocked) - before);
    printf("%s\n", blocked);
}

/* Until the simulated device is asked so often for that, however long the machine takes. */
static bool comes_to(const char *name, uint64_t n_calls)
{
    for (int n = 0; n < PATIENCE_MS; n++) {
        if (vpmm_sim_calls(name) >= n_calls)
            return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static bool goes_back(void)
{
    return comes_to("cuMemRelease", 1);
}

static bool all_goes_back(void)
{
    return comes_to("cuMemRelease", vpmm_sim_calls("cuMemCreate"));
}

static void use_memory(void)
{
    CUdeviceptr sync, async;
    must(cuMemAlloc(&sync, 64 * MIB));
    must(cuMemAllocAsync(&async, 64 * MIB, NULL));
    must(cuMemFree(sync));
    must(cuMemFreeAsync(async, NULL));
    must(cuStreamSynchronize(NULL));
}

static void use_much(void)
{
    CUdeviceptr address;
    must(cuMemAlloc(&address, 1024 * MIB));
    must(cuMemFree(address));
}

static void scene_idle(void)
{
    start();
    unsigned before = count_tasks(NULL);
    use_memory();
    printf("goes back %d\n", all_goes_back());
    tell_threads(before);
    use_memory();
}

/* Frees a peak and works on with less, so that it never counts as idle; then has the peak again. */
static void scene_decay(void)
{
    start();
    unsigned before = count_tasks(NULL);
    use_much();
    for (int n = 0; n < PATIENCE_MS && !vpmm_sim_calls("cuMemRelease"); n++) {
        use_memory();
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    printf("goes back %d\n", goes_back());
    tell_threads(before);
    use_much();
}

/* How many threads there are more once memory was used. */
static void count_after(void (*use)(void))
{
    start();
    unsigned before = count_tasks(NULL);
    use();
    printf("threads more: %u\n", count_tasks(NULL) - before);
}

static void scene_large(void)
{
    count_after(use_much);
}

static void scene_quiet(void)
{
    count_after(use_memory);
}

/* A capture that any careless call of another thread would end. What goes back meanwhile was asked
 * for before it, and becomes complete in it. */
static void scene_idle_capture(void)
{
    CUdeviceptr address;
    CUstream stream;
    CUgraph graph;
    start();
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuMemAllocAsync(&address, 64 * MIB, NULL));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(NULL, true, address, 64 * MIB, 1);
    must(cuMemFreeAsync(address, NULL));
    vpmm_sim_calls_reset();
    must(comes_to("cuEventQuery", 3) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    vpmm_sim_spin_release(spin);
    printf("goes back %d\n", goes_back());
    tell("end", cuStreamEndCapture(stream, &graph));
}

/* What is pending when the time has come goes back once it is complete. */
static void scene_idle_pending(void)
{
    CUdeviceptr address;
    start();
    must(cuMemAllocAsync(&address, 64 * MIB, NULL));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(NULL, true, address, 64 * MIB, 1);
    must(cuMemFreeAsync(address, NULL));
    vpmm_sim_calls_reset();
    printf("asked %d\n", comes_to("cuEventQuery", 3));
    printf("released meanwhile %d\n", (int)vpmm_sim_calls("cuMemRelease"));
    vpmm_sim_spin_release(spin);
    printf("goes back %d\n", goes_back());
}

/* What was used goes back in the parent, whose child has no thread for it. */
static void scene_idle_fork(void)
{
    start();
    use_much();
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("threads of the child: %u\n", count_tasks(NULL));
        exit(0);
    }
    int status = -1;
    (void)waitpid(child, &status, 0);
    printf("child %d\n", status);
    printf("goes back %d\n", goes_back());
}

/* Ends while memory goes back, or just before or after. */
static void scene_idle_end(void)
{
    start();
    for (int i = 0; i < 50; i++) {
        use_much();
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* ---- the end ---- */

static CUdeviceptr kept[3];

static void free_late(void)
{
    CUdeviceptr fresh;
    tell("late malloc", cuMemAlloc(&fresh, 8 * MIB));
    tell("late free", cuMemFree(fresh));
    tell("late free of an older block", cuMemFree(kept[0]));
    tell("late freeasync", cuMemFreeAsync(kept[1], NULL));
}

__attribute__((destructor)) static void last(void)
{
    if (kept[2])
        tell("last free", cuMemFree(kept[2]));
}

/* One handler is registered before the driver is used, so it runs after all that the driver and we
 * registered. */
static void scene_late_frees(void)
{
    if (atexit(free_late) != 0)
        exit(1);
    start();
    must(cuMemAlloc(&kept[0], 8 * MIB));
    must(cuMemAllocAsync(&kept[1], 8 * MIB, NULL));
    must(cuMemAlloc(&kept[2], 8 * MIB));
}

static void scene_quick_exit(void)
{
    start();
    use_memory();
    puts("leaves");
    (void)fflush(stdout);
    _exit(3);
}

/* ---- other programs and libraries ---- */

static void scene_exec(void)
{
    start();
    use_memory();
    puts("executes");
    (void)fflush(stdout);
    command[1] = (char *)"quiet";
    (void)execv(command[0], command);
    exit(125);
}

/* A plug-in that allocates and is closed; what it allocated is freed here. */
static void scene_plugin(void)
{
    start();
    for (int i = 0; i < 3; i++) {
        CUdeviceptr (*allocate)(size_t bytes);
        void *plugin = dlopen(command[2], RTLD_NOW | RTLD_LOCAL);
        void *found = plugin ? dlsym(plugin, "allocate") : NULL;
        if (!found)
            exit(125);
        memcpy(&allocate, &found, sizeof allocate);
        CUdeviceptr address = allocate(8 * MIB);
        printf("closed %d\n", dlclose(plugin));
        tell("free", cuMemFree(address));
        tell("free", cuMemFree(address));
    }
}

/* ---- threads and streams ---- */

static void *use_and_end(void *unused)
{
    CUdeviceptr address;
    (void)unused;
    must(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++) {
        must(cuMemAllocAsync(&address, 64 * MIB, NULL));
        must(cuMemFreeAsync(address, NULL));
    }
    must(cuStreamSynchronize(NULL));
    return NULL;
}

/* One after another: each could have the memory of the one before. */
static void scene_threads_end(void)
{
    start();
    for (int i = 0; i < N_THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, use_and_end, NULL) != 0)
            exit(1);
        (void)pthread_join(thread, NULL);
    }
    CUdeviceptr address;
    tell("malloc", cuMemAlloc(&address, 128 * MIB));
}

/* Page by page: what /proc/self/status says may be off by 32 pages a processor and kind of memory.
 */
static unsigned long resident_kib(void)
{
    unsigned long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        (void)sscanf(line, "Rss: %lu", &kib);
    if (file)
        (void)fclose(file);
    return kib;
}

static void scene_streams(void)
{
    unsigned long warm_kib = 0;
    start();
    for (int i = 0; i < N_STREAMS; i++) {
        CUstream stream;
        CUdeviceptr address;
        must(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        must(cuMemAllocAsync(&address, 16 * MIB, stream));
        must(cuMemFreeAsync(address, stream));
        must(cuStreamSynchronize(stream));
        must(cuStreamDestroy(stream));
        if (i == N_WARM)
            warm_kib = resident_kib();
    }
    fprintf(stderr, "grown by %ld KiB\n", (long)resident_kib() - (long)warm_kib);
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {SCENE(idle),      SCENE(quiet),    SCENE(idle_capture), SCENE(idle_pending),
              SCENE(idle_fork), SCENE(idle_end), SCENE(late_frees),   SCENE(quick_exit),
              SCENE(exec),      SCENE(plugin),   SCENE(threads_end),  SCENE(streams),
              SCENE(decay),     SCENE(large)};

int main(int n, char **arguments)
{
    command = arguments;
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].run();
    return 0;
}
