// For tests. Kills or stops a rank at a chosen point of a training step, from inside it: an
// optimizer whose update() raises the signal, a callback of LibTorch's operators, a thread.
#pragma once

#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/record_function.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

using SteadyClock = std::chrono::steady_clock;

/// Where in a step a rank is lost.
enum class Point {
  in_backward,   // at the gradient of parameter `number`
  in_update,     // in step(), before (even `number`) or after (odd) part `number` / 2 is updated
  in_copy,       // in step(), before copy `number` after the last part was updated: a rank copies
                 // new values when all ranks have theirs. Where nothing is copied, after step()
  after_update,  // `delay` after the last part was updated: before, while or after all have theirs
};

struct Loss {
  int signal = SIGKILL;
  Point point = Point::in_update;
  int in_step = 2;           // not the first two: they count parts and copies
  std::uint64_t number = 0;  // modulo the number of parameters, parts or copies
  std::chrono::microseconds delay{0};
};

class Trap {
 public:
  /// Writes the time of the signal to `record`: the steady clock is that of all processes.
  Trap(const Loss& loss, std::string record) : loss_(loss), record_(std::move(record)) {
    current_ = this;
    at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator));
  }
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;
  ~Trap() {
    at::clearThreadLocalCallbacks();
    current_ = nullptr;
  }

  [[nodiscard]] static std::int64_t time_in(const std::string& record) {
    std::int64_t time = 0;
    std::ifstream(record, std::ios::binary).read(reinterpret_cast<char*>(&time), sizeof(time));
    return time;
  }

  void begin_step(int step) {
    is_armed_ = step == loss_.in_step;
    parts_ = 0;
    copies_ = 0;
  }
  void at_gradient_of(std::uint64_t parameter, std::uint64_t num_parameters) {
    if (loss_.point == Point::in_backward && parameter == loss_.number % num_parameters) hit();
  }
  void before_part() { at_update(2 * parts_); }
  void after_part() {
    at_update(2 * parts_ + 1);
    if (++parts_ != num_parts_ || loss_.point != Point::after_update || !is_armed_) return;
    later_ = std::jthread([this] {
      const auto until = SteadyClock::now() + loss_.delay;
      while (SteadyClock::now() < until) {
      }
      hit();
    });
  }
  void end_step() {
    if (later_.joinable()) later_.join();
    if (loss_.point == Point::in_copy) hit();
    num_parts_ = parts_;
    num_copies_ = copies_;
  }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
    if (current_ != nullptr && std::string_view(function.name()) == "aten::copy_") {
      current_->before_copy();
    }
    return nullptr;
  }
  void before_copy() {
    if (num_parts_ == 0 || parts_ != num_parts_) return;
    if (loss_.point == Point::in_copy && copies_ == loss_.number % std::max(num_copies_, kOne)) {
      hit();
    }
    ++copies_;
  }
  void at_update(std::uint64_t moment) {
    if (num_parts_ > 0 && loss_.point == Point::in_update &&
        moment == loss_.number % (2 * num_parts_)) {
      hit();
    }
  }
  void hit() {
    if (!std::exchange(is_armed_, false)) return;
    const std::int64_t now = SteadyClock::now().time_since_epoch().count();
    std::ofstream(record_, std::ios::binary)
        .write(reinterpret_cast<const char*>(&now), sizeof(now));
    ::kill(::getpid(), loss_.signal);
  }

  static constexpr std::uint64_t kOne = 1;
  static inline thread_local Trap* current_ = nullptr;

  Loss loss_;
  std::string record_;
  bool is_armed_ = false;
  std::uint64_t parts_ = 0;  // updated in this step
  std::uint64_t copies_ = 0;
  std::uint64_t num_parts_ = 0;  // of a step
  std::uint64_t num_copies_ = 0;
  std::jthread later_;
};

/// Subtracts lr × gradient. Two roundings per element, with any instruction set.
class TrappedSgd final : public FlatOptimizer {
 public:
  /// Without a trap: null.
  TrappedSgd(FlatParameters& flat, double lr, Trap* trap)
      : FlatOptimizer(
            flat,
            {.kind = "TrappedSgd", .lr = lr, .weight_decay = 0, .groups = {}, .state_names = {}}),
        lr_(lr),
        shards_(flat.shared_shards()),
        trap_(trap) {}

 private:
  void update(const SegmentMemory& memory, std::span<const RangeStep> ranges) override {
    if (trap_ != nullptr) trap_->before_part();
    for (const auto& range : ranges) step_run(memory, range.elements);
    if (memory.values.is_cuda()) {  // all parameters of the only segment, without ranges
      for (const auto& run : shards_->runs(0)) step_run(memory, run);
    }
    if (trap_ != nullptr) trap_->after_part();
  }
  void step_run(const SegmentMemory& memory, const OwnedRun& run) const {
    const auto part_of = [&run](const at::Tensor& of, bool is_packed) {
      return of.narrow(0, is_packed ? run.packed_begin : run.begin, run.count);
    };
    auto values = part_of(memory.values, memory.values_are_packed);
    const auto old = memory.old_values.defined() ? part_of(memory.old_values, false) : values;
    const auto change = part_of(memory.gradients, memory.gradients_are_packed) * lr_;
    at::sub_out(values, old, change);
  }

  double lr_;
  std::shared_ptr<const Shards> shards_;
  Trap* trap_;
};

}  // namespace lockstep
