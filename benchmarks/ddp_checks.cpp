// The cost of the checks of Ddp that are always on, as a fraction of a training step: the time per
// call times the calls per step, and the same in instructions where the counter is readable.
//   ddp_checks [mlp WIDTH BATCH | transformer LENGTH BATCH]
// One rank, one thread, in processor time: checks are local work of each rank. Without arguments:
// the models for which the documents state lockstep's speed.
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "ddp_against_python/fused_adamw.h"
#include "ddp_against_python/subject.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/fabric/call.h"
#include "lockstep/flat/walk.h"
#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;

// Instructions of this thread in user mode, where the machine allows counting.
class InstructionCounter {
 public:
  InstructionCounter() {
    perf_event_attr wanted{};
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.size = sizeof(wanted);
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.exclude_kernel = 1;
    wanted.exclude_hv = 1;
    const auto opened = ::syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0UL);
    if (opened < 0) {
      reason_ = std::strerror(errno);
    } else {
      file_ = FileDescriptor(static_cast<int>(opened));
    }
  }

  /// The reason why instructions are not counted; empty if they are.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  [[nodiscard]] double now() const {
    std::uint64_t count = 0;
    if (!reason_.empty() || ::read(file_.number(), &count, sizeof(count)) != sizeof(count))
      return 0;
    return static_cast<double>(count);
  }

 private:
  FileDescriptor file_;
  std::string reason_;
};

struct Cost {
  double seconds = 0;
  double instructions = 0;

  friend Cost operator-(const Cost& a, const Cost& b) {
    return {a.seconds - b.seconds, a.instructions - b.instructions};
  }
};

bool sooner(const Cost& a, const Cost& b) { return a.seconds < b.seconds; }

struct Check {
  std::string name;
  double calls = 0;  // per step
  Cost each;
};

// Of this thread, so that other programs have no influence.
double seconds_of_processor() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The median cost of one call of `action` over `rounds` rounds of `repeats` calls.
Cost cost_of(const InstructionCounter& counter, int rounds, int repeats,
             const std::function<void()>& action) {
  std::vector<double> seconds;
  std::vector<double> instructions;
  for (int round = 0; round < rounds; ++round) {
    const auto count = counter.now();
    const auto begin = seconds_of_processor();
    for (int i = 0; i < repeats; ++i) action();
    seconds.push_back((seconds_of_processor() - begin) / repeats);
    instructions.push_back((counter.now() - count) / repeats);
  }
  const auto median = [](std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  return {median(seconds), median(instructions)};
}

// The comparison of call signatures, as one rank of two does it.
Cost cost_of_a_compared_call(const InstructionCounter& counter) {
  const Call call{.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = 1 << 20,
                  .name = "gradients 12"};
  std::uint64_t number = 0;
  volatile std::uint64_t of_other = 0;
  return cost_of(counter, 21, 1000, [&] {
    const auto signature = signature_of(descriptor_of(call), ++number, {1, 64, 64});
    of_other = signature;
    if (of_other != signature) std::abort();
  });
}

// The copies of all gradients to their slots, as backward does them, minus plain copies of the same
// gradients. They take turns; the minimum of each counts, because a disturbance only adds time.
Cost cost_of_noting(const InstructionCounter& counter, const FlatParameters& flat) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : flat.parameters()) gradients.push_back(parameter.tensor.clone());
  const auto note = [&] {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (copy_noting_non_finite(flat.parameters()[i].gradient, gradients[i])) std::abort();
    }
  };
  const auto plain = [&] {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::memcpy(flat.parameters()[i].gradient.data_ptr(), gradients[i].const_data_ptr(),
                  gradients[i].nbytes());
    }
  };
  auto with = cost_of(counter, 1, 1, note);
  auto without = cost_of(counter, 1, 1, plain);
  for (int round = 0; round < 15; ++round) {
    with = std::min(with, cost_of(counter, 1, 1, note), sooner);
    without = std::min(without, cost_of(counter, 1, 1, plain), sooner);
  }
  return with - without;
}

std::string in_instructions(const InstructionCounter& counter, const Cost& part,
                            const Cost& whole) {
  if (!counter.reason().empty()) return "";
  return fmt::format(", {:.4f} % of its instructions",
                     100 * part.instructions / whole.instructions);
}

void report(const InstructionCounter& counter, const SubjectOptions& options) {
  auto subject = make_subject(options, 0);
  FusedAdamW optimizer(subject.model->parameters(), {.lr = 1e-4});
  Ddp ddp(*subject.model, ProcessGroup(World::alone()));
  const auto step = [&] {
    subject.loss().backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  for (int i = 0; i < 3; ++i) step();
  const auto whole = cost_of(counter, 15, 1, step);
  const auto num_buckets = static_cast<double>(ddp.plan().buckets.size());
  const auto num_parameters = static_cast<double>(ddp.flat().parameters().size());
  ReplicaCheck replicas;
  bool in_place = true;
  const std::vector<Check> checks{
      {"ranks make the same calls", num_buckets, cost_of_a_compared_call(counter)},
      {"parameters are in place", num_parameters,
       cost_of(counter, 21, 1000,
               [&] { in_place = in_place && ddp.flat().slots().is_in_place(0); })},
      {"all gradients are finite", 1, cost_of_noting(counter, ddp.flat())},
      {"replicas are equal", 1, cost_of(counter, 21, 4, [&] { replicas.look(ddp.flat(), 1); })},
  };
  fmt::print("{} {}, batch {}: a step takes {:.2f} ms{}\n", options.model, options.size,
             options.batch, whole.seconds * 1e3,
             counter.reason().empty()
                 ? fmt::format(", {:.1f} million instructions", whole.instructions / 1e6)
                 : "");
  Cost all;
  for (const auto& check : checks) {
    const Cost cost{check.each.seconds * check.calls, check.each.instructions * check.calls};
    all = {all.seconds + cost.seconds, all.instructions + cost.instructions};
    fmt::print("  {:34} {:4.0f} x {:10.3f} us = {:6.3f} % of the step{}\n", check.name, check.calls,
               check.each.seconds * 1e6, 100 * cost.seconds / whole.seconds,
               in_instructions(counter, cost, whole));
  }
  fmt::print("  {:34} {:27.3f} % of the step{}\n", "all checks", 100 * all.seconds / whole.seconds,
             in_instructions(counter, all, whole));
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments != 1 && num_arguments != 4) {
    std::fputs("usage: ddp_checks [mlp WIDTH BATCH | transformer LENGTH BATCH]\n", stderr);
    return 2;
  }
  at::set_num_threads(1);
  const InstructionCounter counter;
  if (!counter.reason().empty()) {
    fmt::print("instructions are not counted: perf_event_open says \"{}\"\n", counter.reason());
  }
  std::vector<SubjectOptions> all{
      {"mlp", 1024, 32}, {"mlp", 1024, 128}, {"mlp", 256, 32}, {"transformer", 64, 2}};
  if (num_arguments == 4) {
    all = {{arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3])}};
  }
  for (const auto& options : all) report(counter, options);
  return 0;
}
