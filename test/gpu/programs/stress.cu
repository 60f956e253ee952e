/* SPDX-License-Identifier: MIT */
/* Four threads on sixteen streams keep 95% of the device in blocks that each have a pattern: small
 * ones until the device is full, every other freed, then large ones that only moved pages can make,
 * again and again. What is printed does not depend on what is refused. Argument: the seconds after
 * which no new cycle begins (6). */
#include "blocks.cuh"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace {

constexpr int N_THREADS = 4, CYCLES_LEAST = 2, STEPS = 120;
constexpr size_t SMALL_LEAST = 2 * MIB, SMALL_MOST = 128 * MIB;

/* All threads arrive before any goes on; all get the same answer to whether time is over. */
class Meeting {
  public:
    explicit Meeting(double seconds) : end_us_(now_us() + seconds * 1e6)
    {
    }
    bool is_over()
    {
        std::unique_lock<std::mutex> hold(lock_);
        unsigned turn = turn_;
        if (++arrived_ == N_THREADS) {
            arrived_ = 0;
            turn_++;
            is_over_ = now_us() > end_us_;
            all_here_.notify_all();
        } else {
            all_here_.wait(hold, [&] { return turn != turn_; });
        }
        return is_over_;
    }

  private:
    std::mutex lock_;
    std::condition_variable all_here_;
    int arrived_ = 0;
    unsigned turn_ = 0;
    double end_us_;
    bool is_over_ = false;
};

struct Report {
    size_t cycles = 0, allocated = 0, refused = 0, asked_again = 0;
    unsigned long long wrong = 0;
    bool is_good = false;
};

void cycle(Keeper &keeper, size_t budget_bytes, Meeting &meeting)
{
    keeper.fill_up(SMALL_LEAST, SMALL_MOST);
    (void)meeting.is_over();
    keeper.renew_every(3);
    keeper.release_every(2);
    (void)meeting.is_over();
    keeper.fill_up(budget_bytes / 40, budget_bytes / 12);
    keeper.verify_all();
    for (int i = 0; i < STEPS; i++) {
        keeper.step(SMALL_LEAST, SMALL_MOST, budget_bytes / 40);
    }
    keeper.renew_every(2);
    keeper.release_every(2);
}

void work(int me, size_t budget_bytes, Meeting &meeting, Report &report)
{
    MUST(cudaSetDevice(0));
    cudaStream_t streams[] = {stream_make(cudaStreamNonBlocking),
                              stream_make(cudaStreamNonBlocking), stream_make(cudaStreamDefault),
                              me == 0 ? cudaStreamLegacy : cudaStreamPerThread};
    Keeper keeper(me + 1, budget_bytes, {streams, streams + 4});
    bool is_over = false;
    while (!is_over || report.cycles < CYCLES_LEAST) {
        cycle(keeper, budget_bytes, meeting);
        report.cycles++;
        is_over = meeting.is_over();
    }
    report.is_good = keeper.finish("thread", me);
    report.allocated = keeper.allocated();
    report.refused = keeper.refused();
    report.asked_again = keeper.asked_again();
    report.wrong = keeper.wrong();
    for (int i = 0; i < 3; i++) {
        MUST(cudaStreamDestroy(streams[i]));
    }
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Meeting meeting(argc > 1 ? std::stod(argv[1]) : 6.0);
    size_t budget_bytes = device_bytes() / 100 * 95 / N_THREADS;
    Report reports[N_THREADS], sum;
    std::vector<std::thread> threads;
    for (int i = 0; i < N_THREADS; i++) {
        threads.emplace_back(work, i, budget_bytes, std::ref(meeting), std::ref(reports[i]));
    }
    bool good = true;
    for (int i = 0; i < N_THREADS; i++) {
        threads[i].join();
        printf("thread %d: every block kept its pattern: %s\n", i,
               reports[i].is_good ? "yes" : "NO");
        good = good && reports[i].is_good;
        sum.allocated += reports[i].allocated;
        sum.refused += reports[i].refused;
        sum.asked_again += reports[i].asked_again;
        sum.wrong += reports[i].wrong;
    }
    printf("# device_bytes %zu\n# cycles %zu\n# blocks %zu\n", device_bytes(), reports[0].cycles,
           sum.allocated);
    printf("# refused %zu\n# asked_again %zu\n# wrong_words %llu\n", sum.refused, sum.asked_again,
           sum.wrong);
    return good ? 0 : 1;
}
