// For tests of this room: groups of threads, a small model, the results of a serial computation.
//
// With LOCKSTEP_TEST_DEVICE=cuda in the environment the same tests run on a GPU. Ranks are then
// processes that share it: autograd has one thread per device and process, in which the ranks of a
// process would wait for each other. So the body of a test must not give results to the test.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

// The device of all models and batches of these tests.
inline at::Device test_device() {
  static const auto chosen = [] {
    const auto name = Environment::of_process().find("LOCKSTEP_TEST_DEVICE");
    if (name != "cuda") return at::Device(at::kCPU);
    // LibTorch's CUDA libraries are not linked: a test on the CPU does not load them.
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw UsageError(std::string("no CUDA libraries of LibTorch: ") + dlerror());
    }
    return at::Device(at::kCUDA, 0);
  }();
  return chosen;
}

// Skips all tests where the device is not there. Not in a rank's process: the one that started it
// has looked, and a process that has looked cannot fork others which use the device.
struct TestDevice final : ::testing::Environment {
  void SetUp() override {
    const bool wants_gpu =
        lockstep::Environment::of_process().find("LOCKSTEP_TEST_DEVICE") == "cuda";
    if (!wants_gpu || testing::is_rank_process()) return;
    // Without a driver, to load LibTorch's CUDA libraries would take most of the test's time.
    if (::access("/dev/nvidiactl", F_OK) != 0 || !test_device().is_cuda() ||
        !torch::cuda::is_available()) {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }
};
inline const auto* const test_device_environment =
    ::testing::AddGlobalTestEnvironment(new TestDevice);

inline at::TensorOptions on_device(at::ScalarType dtype) {
  return at::TensorOptions(test_device()).dtype(dtype);
}

// Runs `body` on every rank, each in a thread. On a GPU each runs in a process, the backend is the
// one for this GPU, and the output of the ranks follows as that of this process.
inline void with_ddp_groups(int size, const std::function<void(ProcessGroup&)>& body,
                            ProcessGroupOptions options = {.timeout = std::chrono::seconds(20)}) {
  if (test_device().is_cuda()) options.backend = Backend::automatic;
  if (test_device().is_cpu() || size == 1) return with_groups(size, body, options);
  static int number = 0;
  const int world = number++;
  const auto ends = testing::run_ranks_as_processes(size, [&](testing::Rank& self) {
    ProcessGroup group(world_of_processes(self.rank(), self.size(), world), options);
    body(group);
  });
  for (const auto& end : ends) std::cerr << end.output;
}

// What the ranks log in with_ddp_groups(), except for the choice of a backend.
inline std::string log_of(int size, const std::function<void(ProcessGroup&)>& body) {
  const bool are_processes = test_device().is_cuda() && size > 1;
  ::testing::internal::CaptureStderr();
  with_ddp_groups(size, [&](ProcessGroup& group) {
    body(group);
    // A process runs the test up to here, and has captured its own output.
    if (are_processes) std::cerr << ::testing::internal::GetCapturedStderr();
  });
  std::istringstream all(::testing::internal::GetCapturedStderr());
  std::string text;
  for (std::string line; std::getline(all, line);) {
    const bool is_logged = line.starts_with("rank ") && line.find(" | ") != std::string::npos;
    const bool is_choice = line.find(" uses backend ") != std::string::npos;
    if (is_logged && !is_choice) text += line + "\n";
  }
  return text;
}

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline ::testing::AssertionResult holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

// Three layers and a branch that forward() may leave out.
struct TestNetImpl : torch::nn::Module {
  TestNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("branch", branch);
    register_module("head", head);
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& x, bool with_branch = true) {
    auto hidden = torch::relu(first->forward(x));
    hidden = torch::relu(second->forward(hidden));
    if (with_branch) hidden = hidden + branch->forward(hidden);
    return head->forward(hidden);
  }
  torch::nn::Linear first{6, 40};
  torch::nn::Linear second{40, 40};
  torch::nn::Linear branch{40, 40};
  torch::nn::Linear head{40, 3};
};
TORCH_MODULE(TestNet);

// Parameters by name, to build arbitrary graphs. With loss_with() the gradients are known in
// advance: small integers, whose sums are exact in any order.
struct WeightsImpl : torch::nn::Module {
  explicit WeightsImpl(const std::vector<std::string>& names, std::int64_t length = 5) {
    for (const auto& name : names) register_parameter(name, torch::zeros({length}, test_device()));
  }
  at::Tensor operator[](const std::string& name) const { return named_parameters(false)[name]; }
};
using Weights = std::shared_ptr<WeightsImpl>;
inline Weights weights(const std::vector<std::string>& names, std::int64_t length = 5) {
  return std::make_shared<WeightsImpl>(names, length);
}

// A loss for which every element of the weight's gradient is `gradient`.
inline at::Tensor loss_with(const at::Tensor& weight, double gradient) {
  return (weight * gradient).sum();
}

// The mean of 1, 2, …, size.
inline double mean_rank(int size) { return (1 + size) / 2.0; }

inline ::testing::AssertionResult is_filled(const at::Tensor& tensor, double value) {
  if (!tensor.defined()) return ::testing::AssertionFailure() << "undefined, not " << value;
  if (torch::equal(tensor, torch::full_like(tensor, value))) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << tensor << " is not all " << value;
}

// Moves the module to the device and gives it equal weights on every rank for equal seeds. Does not
// use LibTorch's generators: they belong to the process, and threads must not draw from them
// concurrently.
inline void fill(torch::nn::Module& module, double seed) {
  const torch::NoGradGuard off;
  module.to(test_device());
  double phase = seed;
  for (auto& parameter : module.parameters()) {
    const auto count = parameter.numel();
    parameter.copy_((torch::arange(count, torch::kDouble) * 0.7 + phase)
                        .sin()
                        .mul(0.3)
                        .reshape(parameter.sizes()));
    phase += 1;
  }
}

// A batch that depends on rank and step.
inline at::Tensor batch_of(int rank, int step, std::int64_t rows = 4, std::int64_t columns = 6) {
  return (torch::arange(rows * columns, torch::kDouble) * 1.3 + rank * 17 + step * 5)
      .cos()
      .to(torch::kFloat)
      .reshape({rows, columns})
      .to(test_device());
}

inline std::vector<at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : module.parameters()) {
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return all;
}

// The sum along the tree of numerics.md, which must be bit-identical for any number of ranks.
inline at::Tensor tree_sum(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts.front();
  std::size_t middle = 1;
  while (middle * 2 < parts.size()) middle *= 2;
  const auto cut = parts.begin() + static_cast<std::ptrdiff_t>(middle);
  return tree_sum({parts.begin(), cut}) + tree_sum({cut, parts.end()});
}

// The gradients of all ranks, computed in one process, summed along the tree and divided. A rank
// without a gradient adds zero; if no rank has one, the result is undefined.
inline std::vector<at::Tensor> serial_mean(const std::vector<std::vector<at::Tensor>>& of_ranks,
                                           double divisor) {
  std::vector<at::Tensor> mean;
  for (std::size_t i = 0; i < of_ranks.front().size(); ++i) {
    at::Tensor like;
    for (const auto& own : of_ranks) like = own[i].defined() ? own[i] : like;
    std::vector<at::Tensor> parts;
    for (const auto& own : of_ranks) {
      if (like.defined()) parts.push_back(own[i].defined() ? own[i] : torch::zeros_like(like));
    }
    // By a tensor: on a GPU, LibTorch divides by a number as a multiplication by its reciprocal.
    mean.push_back(like.defined() ? tree_sum(parts) / torch::full({}, divisor, like.options())
                                  : at::Tensor());
  }
  return mean;
}

// Bitwise equal; undefined tensors must agree too.
inline ::testing::AssertionResult are_equal(const std::vector<at::Tensor>& got,
                                            const std::vector<at::Tensor>& expected) {
  if (got.size() != expected.size())
    return ::testing::AssertionFailure() << "different numbers of tensors";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].defined() != expected[i].defined()) {
      return ::testing::AssertionFailure() << "tensor " << i << " is defined on one side only";
    }
    if (got[i].defined() && !torch::equal(got[i], expected[i])) {
      return ::testing::AssertionFailure() << "tensor " << i << " is\n"
                                           << got[i] << "\nnot\n"
                                           << expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep
