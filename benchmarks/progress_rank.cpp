// One rank of hosts_benchmark: what should move bytes while the training thread computes?
//   progress_rank ANSWER KIND MILLISECONDS STEPS
// Two ranks send each other 25 MiB while each multiplies matrices for about MILLISECONDS. KIND is
// the one that moves the bytes:
//   hooks-N  the training thread, N times during its computation, and then until all has moved
//   thread   one more thread, which sleeps in poll() until the socket is ready
//   uring    one more thread, which sleeps in io_uring, while the kernel moves the bytes
// Steps with and without communication take turns. Rank 0 writes, per step, in milliseconds and as
// the maximum over the ranks: from the beginning until all bytes have moved ("moved"); the
// computation with and without communication; the processor time of the thread. Without io_uring in
// the kernel, there are no steps of uring.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/launch/init.h"
#include "plain_stream.h"
#include "progress_uring.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 25U << 20;
constexpr std::size_t kTurn = 1U << 20;  // as the frames of backend tcp
constexpr int kPieces = 64;              // of the computation; hooks are called between them

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// 256 KiB per matrix: the caches matter, as in a layer.
void multiply(int times) {
  constexpr int kWidth = 256;
  static std::vector<float> a(kWidth * kWidth, 0.5F);
  static std::vector<float> b(kWidth * kWidth, 0.25F);
  static std::vector<float> c(kWidth * kWidth);
  for (int repeat = 0; repeat < times; ++repeat) {
    for (int i = 0; i < kWidth; ++i) {
      for (int k = 0; k < kWidth; ++k) {
        const float factor = a[static_cast<std::size_t>(i * kWidth + k)];
        for (int j = 0; j < kWidth; ++j) {
          c[static_cast<std::size_t>(i * kWidth + j)] +=
              factor * b[static_cast<std::size_t>(k * kWidth + j)];
        }
      }
    }
    a[static_cast<std::size_t>(repeat % kWidth)] = c[0] > 0 ? 0.5F : 0.25F;  // uses the result
  }
}

// Runs one task at a time on a thread of its own, and measures the thread's processor time.
class Helper {
 public:
  void run(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    changed_.notify_all();
  }
  double wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !task_; });
    return milliseconds_;
  }

 private:
  static double processor_time() {
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }
  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return task_ != nullptr; })) {
      lock.unlock();
      const double before = processor_time();
      task_();
      lock.lock();
      milliseconds_ = processor_time() - before;
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> task_;  // mutex_, while it is not running
  double milliseconds_ = 0;     // mutex_
  std::jthread thread_{[this](const std::stop_token& stop) { loop(stop); }};  // last
};

struct Step {
  double moved = 0;
  double computed = 0;
  double thread = 0;
};

class Ranks {
 public:
  explicit Ranks(const World& world)
      : group_(make_group(world, {}, BackendOptions{})), stream_(connect_plainly(world)) {}

  [[nodiscard]] int socket() const noexcept { return stream_.number(); }
  void meet() { reduce({0}); }
  std::vector<double> reduce(std::vector<double> values) {
    const auto bytes = std::as_writable_bytes(std::span(values));
    group_->wait(*group_->start({.kind = Collective::all_reduce,
                                 .dtype = DType::float64,
                                 .op = ReduceOp::max,
                                 .count = static_cast<std::int64_t>(values.size()),
                                 .input = bytes,
                                 .output = bytes},
                                nullptr));
    return values;
  }

 private:
  std::shared_ptr<Group> group_;
  FileDescriptor stream_;
};

void finish(int socket, PlainExchange& exchange) {
  while (true) {
    move_some(socket, exchange, kTurn);
    if (exchange.is_done()) return;
    wait_to_move(socket, exchange);
  }
}

class Subject {
 public:
  Subject(Ranks& ranks, const std::string& kind, int work)
      : ranks_(ranks), work_(work), out_(kBytes, std::byte{1}), in_(kBytes) {
    if (kind.starts_with("hooks-")) {
      hooks_ = std::stoi(kind.substr(6));
    } else if (kind != "thread" && kind != "uring") {
      throw UsageError("unknown kind " + kind);
    }
    uses_uring_ = kind == "uring";
  }

  Step alone() {
    ranks_.meet();
    const auto begin = Clock::now();
    multiply(work_ * kPieces);
    return {.computed = milliseconds_since(begin)};
  }

  Step with_hooks() {
    ranks_.meet();
    const auto begin = Clock::now();
    PlainExchange exchange{out_, in_};
    std::optional<double> moved;
    const auto move = [&] {
      if (moved) return;
      move_some(ranks_.socket(), exchange, kTurn);
      if (exchange.is_done()) moved = milliseconds_since(begin);
    };
    move();
    for (int piece = 1; piece <= kPieces; ++piece) {
      multiply(work_);
      if (piece % (kPieces / hooks_) == 0) move();
    }
    const double computed = milliseconds_since(begin);
    if (!moved) {
      finish(ranks_.socket(), exchange);
      moved = milliseconds_since(begin);
    }
    return {*moved, computed, 0};
  }

  Step with_thread() {
    ranks_.meet();
    const auto begin = Clock::now();
    double moved = 0;
    helper_->run([&] {
      PlainExchange exchange{out_, in_};
      if (uses_uring_) {
        if (!ring_) ring_ = UringMover::try_make();  // by the thread that uses it
        ring_->move(ranks_.socket(), exchange, kTurn);
      } else {
        finish(ranks_.socket(), exchange);
      }
      moved = milliseconds_since(begin);
    });
    multiply(work_ * kPieces);
    const double computed = milliseconds_since(begin);
    const double thread = helper_->wait();
    return {moved, computed, thread};
  }

  Step with() {
    if (hooks_ > 0) return with_hooks();
    if (!helper_) helper_ = std::make_unique<Helper>();
    return with_thread();
  }

 private:
  Ranks& ranks_;
  int work_;
  int hooks_ = 0;
  bool uses_uring_ = false;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::unique_ptr<UringMover> ring_;
  std::unique_ptr<Helper> helper_;
};

// Multiplications per piece, so that the computation takes `wanted` milliseconds.
int calibrated(Ranks& ranks, double wanted) {
  constexpr int kTried = 20;
  multiply(kTried);
  ranks.meet();
  const auto begin = Clock::now();
  multiply(kTried);
  const auto each = ranks.reduce({milliseconds_since(begin) / kTried}).front();
  return static_cast<int>(wanted / each / kPieces) + 1;
}

void measure(const std::string& answer, const std::string& kind, double wanted, int steps) {
  const auto world = init();
  Ranks ranks(world);
  Subject subject(ranks, kind, calibrated(ranks, wanted));
  constexpr int kWarmUp = 2;
  std::vector<std::string> rows;
  const bool is_available = kind != "uring" || UringMover::try_make() != nullptr;
  for (int i = 0; is_available && i < kWarmUp + steps; ++i) {
    const auto alone = subject.alone();
    const auto with = subject.with();
    const auto all = ranks.reduce({with.moved, with.computed, alone.computed, with.thread});
    if (i < kWarmUp) continue;
    rows.push_back(fmt::format("{{\"moved\":{},\"with\":{},\"without\":{},\"thread\":{}}}", all[0],
                               all[1], all[2], all[3]));
  }
  if (world.rank() == 0) {
    std::ofstream(answer) << fmt::format("{{\"steps\":[{}]}}", fmt::join(rows, ","));
  }
  ranks.meet();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: progress_rank ANSWER KIND MILLISECONDS STEPS\n");
    return 2;
  }
  try {
    measure(argv[1], argv[2], std::stod(argv[3]), std::stoi(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
