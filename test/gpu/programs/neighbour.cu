/* SPDX-License-Identifier: MIT */
/* Two processes on one device. This one takes and frees most of the device, and works on with 1 GiB
 * a millisecond. A copy of this program that it starts then asks for as much. Measured: how long
 * the neighbour is refused, and what that costs this process.
 *
 * Arguments: how the neighbour runs, "bare" (nothing is preloaded there) or "alike" (as this
 * process); and how memory is taken: "whole" (one block of cudaMalloc) or "blocks" (1 GiB each of
 * cudaMallocAsync, as large as what the work asks for). */
#include "common.cuh"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr double STEP_US = 1000.0, WARM_US = 1e6, PATIENCE_US = 20e6;

/* 100 GiB of an H200. */
size_t most_of_device()
{
    size_t left = 0, total = 0;
    MUST(cudaMemGetInfo(&left, &total));
    return total / 10 * 7 / GIB * GIB;
}

void sleep_us(double us)
{
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
}

/* ---- the neighbour ---- */

/* Answers how many seconds it was refused; a negative number: to the end. */
int ask(int socket)
{
    char word;
    void *p = nullptr;
    begin();
    size_t bytes = most_of_device();
    if (write(socket, "r", 1) != 1 || read(socket, &word, 1) != 1) {
        return 1;
    }
    double begin_us = now_us(), answer_s = -1.0;
    while (answer_s < 0 && now_us() - begin_us < PATIENCE_US) {
        if (cudaMalloc(&p, bytes) == cudaSuccess) {
            answer_s = (now_us() - begin_us) / 1e6;
        } else {
            cudaGetLastError();
            sleep_us(10e3);
        }
    }
    if (answer_s >= 0) {
        MUST(cudaMemset(p, 1, bytes));
        MUST(cudaDeviceSynchronize());
    }
    return write(socket, &answer_s, sizeof answer_s) == ssize_t{sizeof answer_s} ? 0 : 1;
}

class Neighbour {
  public:
    /* Before any CUDA call of this process. */
    explicit Neighbour(bool is_bare)
    {
        int sockets[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
            _Exit(1);
        }
        process_ = fork();
        if (process_ == 0) {
            std::string number = std::to_string(sockets[1]);
            close(sockets[0]);
            if (is_bare) {
                unsetenv("LD_PRELOAD");
            }
            execl("/proc/self/exe", "neighbour", "ask", number.c_str(), nullptr);
            _Exit(1);
        }
        close(sockets[1]);
        socket_ = sockets[0];
    }

    void wait_until_ready()
    {
        char word;
        if (read(socket_, &word, 1) != 1) {
            printf("the neighbour is gone\n");
            _Exit(1);
        }
    }

    void go()
    {
        if (write(socket_, "g", 1) != 1) {
            _Exit(1);
        }
    }

    bool has_answered() const
    {
        pollfd waited = {socket_, POLLIN, 0};
        return poll(&waited, 1, 0) > 0;
    }

    double answer_s()
    {
        double answer = -1.0;
        int status = 0;
        if (read(socket_, &answer, sizeof answer) != ssize_t{sizeof answer}) {
            answer = -1.0;
        }
        waitpid(process_, &status, 0);
        return answer;
    }

  private:
    pid_t process_;
    int socket_;
};

/* ---- the work ---- */

struct Work {
    double us = 0.0, busy_us = 0.0, slowest_us = 0.0;
    unsigned steps = 0;

    double rate() const
    {
        return steps / (us / 1e6);
    }
};

void work_once(cudaStream_t stream, Work &work)
{
    void *p;
    double begin_us = now_us();
    MUST(cudaMallocAsync(&p, GIB, stream));
    MUST(cudaMemsetAsync(p, 1, MIB, stream));
    MUST(cudaFreeAsync(p, stream));
    MUST(cudaStreamSynchronize(stream));
    double took_us = now_us() - begin_us;
    work.busy_us += took_us;
    work.slowest_us = std::max(work.slowest_us, took_us);
    work.steps++;
    if (took_us < STEP_US) {
        sleep_us(STEP_US - took_us);
    }
    work.us += now_us() - begin_us;
}

Work work_for(cudaStream_t stream, double us)
{
    Work work;
    while (work.us < us) {
        work_once(stream, work);
    }
    return work;
}

Work work_until_answered(cudaStream_t stream, const Neighbour &neighbour)
{
    Work work;
    while (!neighbour.has_answered() || work.us < WARM_US) {
        work_once(stream, work);
    }
    return work;
}

void take_and_free(size_t bytes, bool in_blocks, cudaStream_t stream)
{
    std::vector<void *> blocks(in_blocks ? bytes / GIB : 0);
    void *whole = nullptr;
    if (!in_blocks) {
        MUST(cudaMalloc(&whole, bytes));
        MUST(cudaFree(whole));
    }
    for (void *&block : blocks) {
        MUST(cudaMallocAsync(&block, GIB, stream));
    }
    for (void *block : blocks) {
        MUST(cudaFreeAsync(block, stream));
    }
    MUST(cudaStreamSynchronize(stream));
}

void tell(const char *when, const Work &work)
{
    printf("# steps_a_second_%s %.0f\n", when, work.rate());
    printf("# step_mean_us_%s %.2f\n", when, work.busy_us / work.steps);
    printf("# step_slowest_us_%s %.0f\n", when, work.slowest_us);
}

} // namespace

int main(int n, char **arguments)
{
    if (n > 2 && strcmp(arguments[1], "ask") == 0) {
        return ask(atoi(arguments[2]));
    }
    bool is_bare = n > 1 && strcmp(arguments[1], "bare") == 0;
    bool in_blocks = n > 2 && strcmp(arguments[2], "blocks") == 0;
    Neighbour neighbour(is_bare);
    cudaStream_t stream;
    begin();
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    neighbour.wait_until_ready();
    (void)work_for(stream, WARM_US);
    Work before = work_for(stream, WARM_US);
    take_and_free(most_of_device(), in_blocks, stream);
    neighbour.go();
    Work meanwhile = work_until_answered(stream, neighbour);
    double refused_s = neighbour.answer_s();
    Work after = work_for(stream, WARM_US);
    printf("# refused_s %.3f\n", refused_s < 0 ? PATIENCE_US / 1e6 : refused_s);
    tell("before", before);
    tell("meanwhile", meanwhile);
    tell("after", after);
    printf("# rate_percent %.1f\n", 100.0 * meanwhile.rate() / before.rate());
    printf("the neighbour %s\n", refused_s < 0 ? "is refused" : "has its memory");
    return 0;
}
