/* SPDX-License-Identifier: MIT */
/* weights PASSES [file]: passes over 24 groups of weights, each checked word by word, by streams
 * and by graphs, at four budgets. Bare, and so without vpmm.h's functions, the weights are
 * resident: what is printed must be the same. With `file` they come from a safetensors file,
 * otherwise from pinned memory. */
#include "watcher.cuh"

#include "../../../include/vpmm/vpmm.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

constexpr int GROUPS = 24;
constexpr int SHARES[] = {0, 25, 50, 75}; /* of all weights in percent; 0: the floor */
constexpr const char *PATH = "model.safetensors";

using Stats = struct vpmm_weights_stats;

const vpmm_interface *vpmm;
char message[512];

/* A call of vpmm.h that must succeed. */
#define DONE(call) done((call), #call, __LINE__)
void done(vpmm_result result, const char *call, int line)
{
    if (result == VPMM_DONE) {
        return;
    }
    printf("line %d: %s: result %d: %s\n", line, call, result, message);
    fflush(stdout);
    _Exit(1);
}

/* ---- the model ---- */

struct Model {
    std::vector<size_t> bytes;
    std::vector<void *> addresses;
    size_t all = 0;
    vpmm_weights *weights = nullptr; /* NULL: resident */
};

uint64_t seed_of(size_t group)
{
    return 1000 + group;
}

void pattern(uint64_t *words, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        words[i] = mix(seed ^ i);
    }
}

Model shape(size_t n, size_t most_mib)
{
    Model model;
    Random random(11);
    for (size_t g = 0; g < n; g++) {
        model.bytes.push_back((MIB + random.below((most_mib - 1) * MIB)) / 8 * 8);
        model.all += model.bytes.back();
    }
    return model;
}

void write_file(const Model &model)
{
    std::string header = "{";
    size_t at = 0;
    for (size_t g = 0; g < model.bytes.size(); g++) {
        header += (g ? ", \"" : "\"") + std::to_string(g) + "\": {\"dtype\": \"U8\", \"shape\": [" +
                  std::to_string(model.bytes[g]) + "], \"data_offsets\": [" + std::to_string(at) +
                  ", " + std::to_string(at + model.bytes[g]) + "]}";
        at += model.bytes[g];
    }
    header += "}";
    uint64_t length = header.size();
    FILE *file = fopen(PATH, "wb");
    bool good = file && fwrite(&length, 8, 1, file) == 1 &&
                fwrite(header.data(), 1, length, file) == length;
    for (size_t g = 0; good && g < model.bytes.size(); g++) {
        std::vector<uint64_t> words(model.bytes[g] / 8);
        pattern(words.data(), words.size(), seed_of(g));
        good = fwrite(words.data(), 8, words.size(), file) == words.size();
    }
    if (!good || fclose(file) != 0) {
        printf("%s cannot be written\n", PATH);
        _Exit(1);
    }
}

void make_resident(Model &model)
{
    for (size_t g = 0; g < model.bytes.size(); g++) {
        void *p;
        MUST(cudaMalloc(&p, model.bytes[g]));
        fill(p, model.bytes[g], seed_of(g), nullptr);
        model.addresses.push_back(p);
    }
    MUST(cudaDeviceSynchronize());
}

/* All but the seal. */
void make_weights(Model &model, size_t budget_bytes, bool from_file)
{
    vpmm_weights_options options = {};
    uint32_t source = 0, number;
    options.size_bytes = sizeof options;
    options.budget_bytes = budget_bytes;
    options.flags = VPMM_WEIGHTS_MUST_MAP;
    options.message = message;
    options.message_bytes = sizeof message;
    DONE(vpmm->weights_make(&options, &model.weights));
    if (from_file) {
        write_file(model);
        DONE(vpmm->weights_open(model.weights, PATH, &source));
    }
    for (size_t g = 0; g < model.bytes.size(); g++) {
        uint64_t address;
        std::string name = std::to_string(g);
        vpmm_weight weight = {};
        weight.size_bytes = sizeof weight;
        weight.name = name.c_str();
        weight.group = static_cast<uint32_t>(g);
        weight.bytes = model.bytes[g];
        DONE(vpmm->weights_add(model.weights, &weight, &address, &number));
        model.addresses.push_back(reinterpret_cast<void *>(address));
        if (from_file) {
            DONE(vpmm->weights_from(model.weights, number, source, name.c_str()));
        } else {
            void *memory;
            DONE(vpmm->weights_host(model.weights, number, &memory));
            pattern(static_cast<uint64_t *>(memory), model.bytes[g] / 8, seed_of(g));
        }
    }
}

Stats stats_of(const Model &model)
{
    Stats stats = {};
    stats.size_bytes = sizeof stats;
    DONE(vpmm->weights_stats(model.weights, &stats));
    return stats;
}

/* ---- passes ---- */

/* Some groups are computed on for longer than they are copied. */
void pass(const Model &model, Tally *tally, cudaStream_t stream, uint64_t number)
{
    if (model.weights) {
        DONE(vpmm->weights_begin(model.weights, stream));
    }
    for (size_t g = 0; g < model.bytes.size(); g++) {
        if (model.weights) {
            DONE(vpmm->weights_use(model.weights, static_cast<uint32_t>(g), stream));
        }
        if (mix(number * GROUPS + g) % 16 == 0) {
            spin(0.2, stream);
        }
        check(model.addresses[g], model.bytes[g], seed_of(g), tally, stream);
        if (model.weights) {
            DONE(vpmm->weights_done(model.weights, static_cast<uint32_t>(g), stream));
        }
    }
    if (model.weights) {
        DONE(vpmm->weights_end(model.weights, stream));
    }
}

void passes(const Model &model, Tally *tally, const cudaStream_t streams[2], int n)
{
    for (int i = 0; i < n; i++) {
        pass(model, tally, streams[i % 2], static_cast<uint64_t>(i));
        order_streams(streams[i % 2], streams[(i + 1) % 2]);
    }
    MUST(cudaDeviceSynchronize());
}

void launches(const Model &model, Tally *tally, cudaStream_t stream, int n)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    pass(model, tally, stream, 0);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    for (int i = 0; i < n; i++) {
        MUST(cudaGraphLaunch(exec, stream));
        if (i % 16 == 15) {
            pass(model, tally, stream, static_cast<uint64_t>(i));
        }
    }
    MUST(cudaDeviceSynchronize());
    MUST(cudaGraphExecDestroy(exec));
    if (model.weights) {
        DONE(vpmm->weights_thaw(model.weights));
    }
}

/* ---- one budget ---- */

/* By then the ring has the width that it keeps. */
constexpr int PASSES_JUDGED = 24;

struct Worst {
    long long over_budget = -1, steady_bytes = 0;
    uint64_t steady_vmm_calls = 0, steady_host_waits = 0;
    double share_of_bound = 1;
};

size_t budget_of(const Model &model, int share, uint64_t floor_bytes)
{
    size_t bytes = model.all / 100 * static_cast<size_t>(share);
    return std::max<size_t>(bytes, floor_bytes);
}

/* The steady passes of a budget: what they cost, and what they may not do. */
void look(const Model &model, const Watcher &watcher, const Stats &before, double us,
          long long idle, double link, Worst &worst)
{
    Stats after = stats_of(model);
    long long budget = static_cast<long long>(after.budget_bytes);
    worst.over_budget = std::max(worst.over_budget, watcher.most() - idle - budget);
    worst.steady_bytes = std::max(worst.steady_bytes, watcher.most() - watcher.least());
    worst.steady_vmm_calls += after.vmm_calls - before.vmm_calls;
    worst.steady_host_waits += after.host_waits - before.host_waits;
    double bound_us = static_cast<double>(after.copied_bytes - before.copied_bytes) / link * 1e6;
    worst.share_of_bound = std::min(worst.share_of_bound, bound_us / us);
}

void phase(const Model &model, int share, uint64_t floor_bytes, int n,
           const cudaStream_t streams[2], Watcher &watcher, long long idle, double link,
           Worst &worst)
{
    Tally *tally = tally_make();
    if (model.weights) {
        DONE(vpmm->weights_budget(model.weights, budget_of(model, share, floor_bytes), nullptr));
    }
    for (int i = 0; i < PASSES_JUDGED; i++) {
        passes(model, tally, streams, 1);
    }
    Stats before = model.weights ? stats_of(model) : Stats{};
    watcher.restart();
    double start = now_us();
    passes(model, tally, streams, n);
    double us = now_us() - start;
    if (model.weights) {
        look(model, watcher, before, us, idle, link, worst);
    }
    launches(model, tally, streams[0], n);
    printf("%d%%, ", share);
    if (!tally_end("passes", tally)) {
        _Exit(1);
    }
}

double bytes_a_second(cudaStream_t stream)
{
    void *host, *device;
    constexpr size_t BYTES = 256 * MIB;
    MUST(cudaMallocHost(&host, BYTES));
    MUST(cudaMalloc(&device, BYTES));
    double best_us = 1e12;
    for (int i = 0; i < 6; i++) {
        double start = now_us();
        MUST(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, stream));
        MUST(cudaStreamSynchronize(stream));
        best_us = std::min(best_us, now_us() - start);
    }
    MUST(cudaFree(device));
    MUST(cudaFreeHost(host));
    return static_cast<double>(BYTES) / best_us * 1e6;
}

/* What the driver takes for the first copies, kernels and graphs is no part of what is measured. */
void warm_up(const cudaStream_t streams[2])
{
    Model model = shape(6, 4);
    Tally *tally = tally_make();
    make_weights(model, 12 * MIB, false);
    DONE(vpmm->weights_seal(model.weights, nullptr));
    passes(model, tally, streams, 4);
    launches(model, tally, streams[0], 4);
    DONE(vpmm->weights_destroy(model.weights));
    if (tally_read(tally).wrong != 0) {
        printf("wrong words before the first budget\n");
        _Exit(1);
    }
    MUST(cudaFree(tally));
}

/* A budget below the floor is refused, and nothing is held. */
uint64_t refuse(const Model &model)
{
    vpmm_weights_need need = {};
    need.size_bytes = sizeof need;
    vpmm_result result = vpmm->weights_seal(model.weights, &need);
    if (result != VPMM_BUDGET_TOO_SMALL || stats_of(model).held_bytes != 0) {
        printf("a budget below the floor: result %d, %s\n", result, message);
        _Exit(1);
    }
    return need.floor_bytes;
}

} /* namespace */

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 10000;
    bool from_file = argc > 2;
    begin();
    cudaStream_t streams[2] = {stream_make(cudaStreamNonBlocking),
                               stream_make(cudaStreamNonBlocking)};
    auto table = reinterpret_cast<vpmm_interface_fn *>(dlsym(RTLD_DEFAULT, "vpmm_interface_1"));
    vpmm = table ? table() : nullptr;
    Model model = shape(GROUPS, 40);
    Watcher watcher;
    Worst worst;
    double link = bytes_a_second(streams[0]);
    uint64_t floor_bytes = 0;
    if (vpmm) {
        warm_up(streams);
        Model small = shape(GROUPS, 40);
        make_weights(small, 2 * MIB, from_file);
        floor_bytes = refuse(small);
        DONE(vpmm->weights_destroy(small.weights));
        make_weights(model, floor_bytes, from_file);
    } else {
        make_resident(model);
    }
    MUST(cudaDeviceSynchronize());
    long long idle = watcher.used();
    if (vpmm) {
        DONE(vpmm->weights_seal(model.weights, nullptr));
    }
    for (int share : SHARES) {
        phase(model, share, floor_bytes, n / 8, streams, watcher, idle, link, worst);
    }
    if (vpmm) {
        printf("# link_gb_s %.1f\n# over_budget_bytes %lld\n# steady_bytes %lld\n", link / 1e9,
               worst.over_budget, worst.steady_bytes);
        printf("# steady_vmm_calls %llu\n# steady_host_waits %llu\n# share_of_bound %.3f\n",
               static_cast<unsigned long long>(worst.steady_vmm_calls),
               static_cast<unsigned long long>(worst.steady_host_waits), worst.share_of_bound);
        DONE(vpmm->weights_destroy(model.weights));
    }
    return 0;
}
