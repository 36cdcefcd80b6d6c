// The time of a small all_reduce on the rank that enters it last: the other ranks wait for nothing
// else. One thread has all other ranks, so that two cores suffice for any number of ranks, and no
// rank spins beside the one that is timed.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/shm/test_thread_memory_internal.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCount = 256;  // float32: 1 KiB
constexpr int kCalls = 4000;
constexpr int kRounds = 9;
// The lines that the others have written have left their store buffers.
constexpr std::chrono::microseconds kSettle{3};

void run_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

void await(const std::atomic<int>& word, int value) {
  while (word.load(std::memory_order_acquire) != value) std::this_thread::yield();
}

class Ranks {
 public:
  explicit Ranks(int size) : inputs_(static_cast<std::size_t>(size), std::vector(kCount, 1.0F)) {
    const auto memory = std::make_shared<ThreadMemory>();
    groups_.resize(inputs_.size());
    for_each([&](std::size_t rank) {
      groups_[rank] = thread_group(memory, static_cast<int>(rank), size);
    });
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for_each([&](std::size_t rank) { groups_[rank].reset(); });
  }

  /// The median of the calls, in nanoseconds.
  double median() {
    std::vector<double> times;
    std::jthread others([this] { serve(); });
    const auto last = groups_.size() - 1;
    for (int call = 0; call < kCalls; ++call) {
      await(turn_, 2 * call + 1);
      const auto settled = Clock::now() + kSettle;
      while (Clock::now() < settled) {
      }
      const auto begin = Clock::now();
      const auto operation = start(last);
      groups_[last]->wait(*operation);
      times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
      turn_.store(2 * call + 2, std::memory_order_release);
    }
    others.join();
    turn_.store(0);
    std::nth_element(times.begin(), times.begin() + kCalls / 2, times.end());
    return times[kCalls / 2];
  }

 private:
  template <typename Function>
  void for_each(const Function& function) {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
      threads.emplace_back([&function, rank] { function(rank); });
    }
  }

  std::shared_ptr<Operation> start(std::size_t rank) {
    const auto bytes = std::as_writable_bytes(std::span(inputs_[rank]));
    return groups_[rank]->start({.kind = Collective::all_reduce,
                                 .dtype = DType::float32,
                                 .op = ReduceOp::max,  // the values stay as they are
                                 .count = kCount,
                                 .name = "last rank",
                                 .input = bytes,
                                 .output = bytes},
                                nullptr);
  }

  // Enters every call with all ranks but the last one, then ends it.
  void serve() {
    run_on(1);
    std::vector<std::shared_ptr<Operation>> operations(groups_.size() - 1);
    for (int call = 0; call < kCalls; ++call) {
      await(turn_, 2 * call);
      for (std::size_t rank = 0; rank < operations.size(); ++rank) operations[rank] = start(rank);
      turn_.store(2 * call + 1, std::memory_order_release);
      // As a waiting rank does: they look for the last one while it enters.
      for (bool are_done = false; !are_done;) {
        are_done = true;
        for (std::size_t rank = 0; rank < operations.size(); ++rank) {
          are_done = groups_[rank]->done(*operations[rank]) && are_done;
        }
      }
      await(turn_, 2 * call + 2);
    }
  }

  std::vector<std::vector<float>> inputs_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::atomic<int> turn_ = 0;  // odd: the others have entered
};

}  // namespace

int main() {
  run_on(0);
  fmt::print("all_reduce of 1 KiB, time on the last rank to enter, ns: medians of {} rounds\n",
             kRounds);
  for (const int size : {2, 4, 8, 16}) {
    std::array<double, kRounds> medians{};
    for (auto& each : medians) each = Ranks(size).median();
    std::sort(medians.begin(), medians.end());
    fmt::print("{:>3} ranks {:>6.0f}   from {:.0f} to {:.0f}\n", size, medians[kRounds / 2],
               medians.front(), medians.back());
  }
}
