/* SPDX-License-Identifier: MIT */
/* What the device has in use, by NVML, looked at all the time by a thread: from outside of CUDA,
 * and of whatever is preloaded. */
#ifndef VPMM_TEST_GPU_WATCHER_CUH
#define VPMM_TEST_GPU_WATCHER_CUH

#include "common.cuh"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <thread>

struct NvmlMemory {
    unsigned long long total, free, used;
};

class Watcher {
  public:
    Watcher()
    {
        void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        char bus[64];
        MUST(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
        auto init = find<int (*)()>(nvml, "nvmlInit_v2");
        auto by_bus =
            find<int (*)(const char *, void **)>(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
        info_ = find<int (*)(void *, NvmlMemory *)>(nvml, "nvmlDeviceGetMemoryInfo");
        if (!info_ || !init || !by_bus || init() != 0 || by_bus(bus, &device_) != 0) {
            printf("NVML is not there\n");
            _Exit(1);
        }
        thread_ = std::thread([this] { watch(); });
    }
    ~Watcher()
    {
        is_over_ = true;
        thread_.join();
    }
    long long used() const
    {
        NvmlMemory memory;
        return info_(device_, &memory) == 0 ? static_cast<long long>(memory.used) : -1;
    }
    void restart()
    {
        least_ = most_ = used();
    }
    long long least() const
    {
        return least_;
    }
    long long most() const
    {
        return most_;
    }

  private:
    template <typename Function> static Function find(void *library, const char *name)
    {
        return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    }
    void watch()
    {
        while (!is_over_) {
            long long now = used();
            most_ = std::max<long long>(most_, now);
            least_ = std::min<long long>(least_, now);
        }
    }
    void *device_ = nullptr;
    int (*info_)(void *, NvmlMemory *) = nullptr;
    std::atomic<bool> is_over_{false};
    std::atomic<long long> least_{0}, most_{0};
    std::thread thread_;
};

#endif
