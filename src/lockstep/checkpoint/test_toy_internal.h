// For tests of Run: a tracked object whose state depends on the step, a temporary folder, and ranks
// as threads with one Run each.
#pragma once

#include <ATen/Functions.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/checkpoint/run.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

// After n steps its tensor is n times 0, 1, 2, … and its number is n.
struct Toy {
  NamedTensors named_tensors() { return {{"weight", weight}}; }
  std::string state_json() const { return std::to_string(steps); }
  void load_state_json(std::string_view json) { steps = std::stoi(std::string(json)); }

  void train() {
    weight.add_(at::arange(weight.numel(), at::kFloat));
    ++steps;
  }
  [[nodiscard]] bool is_after(std::int64_t step) const {
    return steps == step &&
           weight.equal(at::arange(weight.numel(), at::kFloat).mul_(static_cast<double>(step)));
  }

  at::Tensor weight = at::zeros({100}, at::kFloat);
  std::int64_t steps = 0;
};

// A temporary folder, removed by the destructor.
class TestFolder {
 public:
  TestFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "lockstep-checkpoint-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs `body` on each rank, as threads, with the rank's world.
inline void with_worlds(int size, const std::function<void(const World&)>& body) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
    body(point.join(self.rank(), self.size()));
    self.barrier(soon());
  });
}

// One start of a run: tracks a toy, resumes, and trains to step `last`. Returns the step that it
// resumed from.
inline std::int64_t train_toy(const World& world, const std::string& folder, std::int64_t last,
                              RunOptions options) {
  Toy toy;
  Run run(world, folder, std::move(options));
  run.track("toy", toy);
  const auto from = run.resume();
  if (!toy.is_after(from)) throw std::runtime_error("the toy differs from the saved one");
  while (run.step() < last) {
    toy.train();
    if (run.end_of_step()) break;
  }
  return from;
}

}  // namespace lockstep
