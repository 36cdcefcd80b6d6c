// For tests of runs: something to track that shows at once whether it is the saved one, a folder of
// the test's own, and ranks as threads that each have a Run.
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

// Gone with the test.
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

// Runs `body` with a world for each rank, as threads.
inline void with_worlds(int size, const std::function<void(const World&)>& body) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
    body(point.join(self.rank(), self.size()));
    self.barrier(soon());
  });
}

// The same run again and again: tracks a toy, goes on, and takes steps until `last`. Returns the
// step it went on from.
inline std::int64_t train_toy(const World& world, const std::string& folder, std::int64_t last,
                              RunOptions options) {
  Toy toy;
  Run run(world, folder, std::move(options));
  run.track("toy", toy);
  const auto from = run.resume();
  if (!toy.is_after(from)) throw std::runtime_error("the toy is not as it was saved");
  while (run.step() < last) {
    toy.train();
    if (run.end_of_step()) break;
  }
  return from;
}

}  // namespace lockstep
