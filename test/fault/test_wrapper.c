/* SPDX-License-Identifier: MIT */
/* The campaign over ordinary programs: each run in a process of its own, whose transcript must be
 * the one that bare CUDA gives. */
#define _GNU_SOURCE
#include "act.h"
#include "campaign.h"
#include "codes.h"

#include "sim/libcuda/control.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ACTS_MAX 32
#define CHILD_LIMIT_S 60
#define BUFFER_ID_OURS (1ULL << 63)
#define SHARED_BYTES sizeof(struct transcript)

/* ---- in the child: what fails ---- */

static struct aim aim;       /* call NULL: nothing */
static int broken_from = -1; /* every call fails from this step on, with aim.code */
static bool is_armed;
static uint64_t n_maps;
static bool has_missed_map;
static const void *library; /* where libvpmm.so is loaded */

static bool is_metadata(void)
{
    return aim.call && strcmp(aim.call, METADATA) == 0;
}

static const void *object_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* The library's mappings of metadata fail on cue; everybody else's do not. */
__attribute__((visibility("default"))) void *mmap(void *wish, size_t bytes, int protection,
                                                  int flags, int fd, off_t offset)
{
    if (is_armed && is_metadata() && object_of(__builtin_return_address(0)) == library) {
        n_maps++;
        if (aim.forever ? n_maps >= aim.nth : n_maps == aim.nth) {
            has_missed_map = true;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, wish, bytes, protection, flags, fd, offset);
}

static void arm(void)
{
    library = object_of(dlsym(RTLD_DEFAULT, "vpmm_version"));
    if (!library)
        library = object_of(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    is_armed = true;
    if (aim.call && aim.nth && !is_metadata() && broken_from < 0)
        vpmm_sim_fault_set(strcmp(aim.call, ANY_CALL) == 0 ? NULL : aim.call, aim.nth, aim.code,
                           aim.forever);
}

static bool has_struck(void)
{
    if (!aim.call)
        return false;
    return is_metadata() ? has_missed_map
                         : vpmm_sim_fault_struck(strcmp(aim.call, ANY_CALL) == 0 ? NULL : aim.call);
}

static void disarm(void)
{
    is_armed = false;
    vpmm_sim_fault_clear(NULL);
}

void step_begin(void)
{
    if (transcript->n == broken_from)
        vpmm_sim_fault_set(NULL, 1, aim.code, true);
}

void step_end(CUresult answer, int line)
{
    int n = transcript->n;
    if (n == STEPS_MAX)
        abort();
    transcript->answers[n] = (int)answer;
    transcript->lines[n] = line;
    transcript->n++;
    if (!transcript->has_struck && has_struck()) {
        transcript->has_struck = true;
        transcript->struck_at = n;
    }
}

void step_is_silent(void)
{
    transcript->is_silent[transcript->n - 1] = true;
}

/* ---- in the child: the run ---- */

static bool is_served(CUdeviceptr address)
{
    unsigned long long id = 0;
    return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) == CUDA_SUCCESS &&
           id >= BUFFER_ID_OURS;
}

static void expect_success(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        complain("the fault is gone, but %s answers %d", what, (int)result);
}

/* The fault is gone: both kinds of memory are served, by the pool where it may be expected. */
static void expect_recovery(bool is_pool_due)
{
    CUcontext context;
    CUdeviceptr p = 0;
    CUdeviceptr q = 0;
    expect_success(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    expect_success(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    expect_success(cuMemAlloc(&p, 8 * MIB), "cuMemAlloc");
    expect_success(cuMemAllocAsync(&q, 8 * MIB, NULL), "cuMemAllocAsync");
    if (is_pool_due && (!is_served(p) || !is_served(q)))
        complain("the fault is gone, but the pool serves no more");
    expect_success(cuMemFree(p), "cuMemFree");
    expect_success(cuMemFreeAsync(q, NULL), "cuMemFreeAsync");
    expect_success(cuCtxSynchronize(), "cuCtxSynchronize");
}

/* One physical handle as large as the device needs all that the pool has. A look at the free memory
 * closes the batches of frees; here an event completes only when somebody waits. */
static void expect_all_given_back(const struct act *act)
{
    CUmemGenericAllocationHandle all = 0;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    size_t free_bytes, total_bytes;
    struct sim_counts counts;
    expect_success(cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
    expect_success(cuCtxSynchronize(), "cuCtxSynchronize");
    expect_success(cuMemCreate(&all, act->device_mib * MIB, &properties, 0), "cuMemCreate");
    expect_success(cuMemRelease(all), "cuMemRelease");
    vpmm_sim_live_counts(&counts);
    if (counts.plain || counts.async)
        complain("%llu and %llu allocations are left", (unsigned long long)counts.plain,
                 (unsigned long long)counts.async);
    if (counts.used_bytes[0])
        complain("%llu bytes of the device are left", (unsigned long long)counts.used_bytes[0]);
}

static void set_environment(const struct act *act, bool is_bare)
{
    (void)setenv("VPMM_SIM_STRICT", "1", 1);
    (void)setenv("VPMM_SIM_EAGER", "0", 1);
    (void)setenv("VPMM_SIM_RACES", "1", 1);
    (void)setenv("VPMM_SIM_HANG_MS", "5000", 1);
    char bytes[16];
    (void)snprintf(bytes, sizeof bytes, "%uM", act->device_mib);
    (void)setenv("VPMM_SIM_BYTES", bytes, 1);
    (void)setenv("VPMM_LOG", "none", 1);
    (void)setenv("VPMM_DISABLE", is_bare ? "1" : "0", 1);
    for (const char *const *pair = act->environment; *pair; pair += 2)
        (void)setenv(pair[0], pair[1], 1);
}

/* What must be judged later: a fault while the pool was made may have told that there can be none,
 * and a device that once could not be reached stays so. */
static bool is_pool_due(const struct act *act)
{
    return !is_metadata() && !aim.forever && !act->is_early && strcmp(act->name, "devices") != 0;
}

/* A block stays where its stream or context was called bad, and is given up where nobody can tell
 * what its stream is; and a handle stays where the driver would not take it back. */
static bool may_keep_memory(void)
{
    return aim.call && (code_is_refusal(aim.call, aim.code) ||
                        strncmp(aim.call, "cuStream", strlen("cuStream")) == 0 ||
                        strcmp(aim.call, "cuMemRelease") == 0);
}

/* What the driver does not take back, or never says to be complete, cannot be given to somebody
 * else. */
static bool may_be_missed(const struct act *act, const struct aim *failing)
{
    return act->is_tight && failing->call &&
           (failing->forever || strcmp(failing->call, "cuMemUnmap") == 0 ||
            strcmp(failing->call, "cuMemRelease") == 0);
}

/* With what the driver would not take back. */
static bool has_filled_the_device(const struct act *act)
{
    return act->is_tight && aim.call && aim.forever && strcmp(aim.call, "cuMemRelease") == 0;
}

static void child(const struct act *act, bool is_bare)
{
    (void)alarm(CHILD_LIMIT_S);
    set_environment(act, is_bare);
    expect_success(cuInit(0), "cuInit");
    if (!act->is_early) {
        CUdeviceptr p = 0;
        ENTER(0);
        expect_success(cuMemAlloc(&p, 2 * MIB), "cuMemAlloc");
        expect_success(cuMemFree(p), "cuMemFree");
    }
    arm();
    act->run();
    disarm();
    if (is_bare || code_is_lasting(aim.code) || has_filled_the_device(act))
        return;
    expect_recovery(is_pool_due(act));
    if (!may_keep_memory())
        expect_all_given_back(act);
}

/* ---- in the parent ---- */

struct job {
    const struct act *act;
    bool is_bare;
    struct aim aim;
    int broken_from;
};

static void perform(const struct job *job, struct transcript *transcript_out)
{
    int status = 0;
    memset(transcript, 0, sizeof *transcript);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        aim = job->aim;
        broken_from = job->broken_from;
        child(job->act, job->is_bare);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        complain("no process");
    if (WIFSIGNALED(status))
        complain("signal %d in step %d", WTERMSIG(status), transcript->n);
    else if (WEXITSTATUS(status) != 0)
        complain("exit %d in step %d", WEXITSTATUS(status), transcript->n);
    *transcript_out = *transcript;
}

__attribute__((noreturn)) static void give_up(const char *text)
{
    (void)fprintf(stderr, "%s\n", text);
    exit(1);
}

/* What bare CUDA answers: without a fault, or with everything failing from one step on. Kept. */
static const struct transcript *bare(size_t number, CUresult code, int from)
{
    static struct known {
        struct known *next;
        size_t act;
        CUresult code;
        int from;
        struct transcript transcript;
    } * first;
    for (const struct known *known = first; known; known = known->next)
        if (known->act == number && known->code == code && known->from == from)
            return &known->transcript;
    struct known *known = calloc(1, sizeof *known);
    if (!known)
        give_up("no memory");
    *known = (struct known){.next = first, .act = number, .code = code, .from = from};
    first = known;
    const struct job job = {&acts[number], true, {.code = code}, from};
    perform(&job, &known->transcript);
    if (known->transcript.complaint[0])
        give_up(known->transcript.complaint);
    return &known->transcript;
}

static void compare(const struct transcript *expected, const struct transcript *seen, int i)
{
    char text[160];
    if (i < expected->n && i < seen->n && expected->answers[i] == seen->answers[i])
        return;
    (void)snprintf(text, sizeof text, "step %d, line %d: %d, where bare CUDA answers %d", i,
                   seen->lines[i], seen->answers[i], expected->answers[i]);
    give_up(text);
}

/* Everything failed from one call on: the step during which that call came may or may not tell, and
 * what needs no driver call succeeds. */
static void judge_lasting(size_t number, const struct transcript *clean,
                          const struct transcript *seen, CUresult code)
{
    int last = seen->has_struck ? seen->struck_at : clean->n;
    for (int i = 0; i < last; i++)
        compare(clean, seen, i);
    if (last == clean->n)
        return;
    const struct transcript *broken = bare(number, code, last);
    bool was_full = acts[number].is_tight && seen->answers[last] == CUDA_ERROR_OUT_OF_MEMORY;
    if (seen->answers[last] != clean->answers[last] && !was_full)
        compare(broken, seen, last);
    for (int i = last + 1; i < broken->n; i++)
        if (!seen->is_silent[i] || seen->answers[i] != CUDA_SUCCESS)
            compare(broken, seen, i);
}

static void judge(size_t number, const struct transcript *clean, const struct transcript *seen,
                  const struct aim *failing)
{
    bool is_refused = failing->call && code_is_refusal(failing->call, failing->code);
    for (int i = 0; i < clean->n || i < seen->n; i++) {
        int answer = i < seen->n ? seen->answers[i] : -1;
        bool may_differ = seen->has_struck && i >= seen->struck_at;
        /* The program named a bad stream, and its block stays. */
        if (may_differ && is_refused && answer == CUDA_ERROR_INVALID_VALUE)
            continue;
        if (may_differ && may_be_missed(&acts[number], failing) &&
            answer == CUDA_ERROR_OUT_OF_MEMORY)
            return;
        compare(clean, seen, i);
    }
}

static struct verdict run(size_t number, const struct faults *faults)
{
    struct transcript seen;
    const struct transcript *clean = bare(number, CUDA_SUCCESS, -1);
    const struct job job = {&acts[number], false, faults->first, -1};
    perform(&job, &seen);
    if (seen.complaint[0])
        (void)fprintf(stderr, "%s\n", seen.complaint);
    if (code_is_lasting(faults->first.code))
        judge_lasting(number, clean, &seen, faults->first.code);
    else
        judge(number, clean, &seen, &faults->first);
    if (seen.complaint[0])
        exit(1);
    return (struct verdict){seen.has_struck, false};
}

int main(int n, char **arguments)
{
    const char *names[ACTS_MAX] = {NULL};
    struct suite suite = {arguments[0], names, run, false, true};
    struct campaign campaign;
    for (size_t i = 0; acts[i].name; i++)
        names[i] = acts[i].name;
    transcript =
        mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (transcript == MAP_FAILED || !campaign_read(&campaign, &suite, n, arguments))
        return 2;
    campaign_run(&campaign);
    campaign_report(&campaign);
    return 0;
}
