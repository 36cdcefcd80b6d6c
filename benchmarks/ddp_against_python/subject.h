// The training of one rank in the comparison: a model with the same weights as Python's, and one
// batch that stays in memory. The Python side is ddp_step.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

struct SubjectOptions {
  std::string model;       // mlp or transformer
  std::int64_t size = 0;   // mlp: the width; transformer: the length of a sequence
  std::int64_t batch = 0;  // samples or sequences per rank
};

struct Subject {
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor()> loss;  // forward over the batch
};

/// The model for every rank, the batch for `rank`: 8 hidden layers of one width and a head of 10
/// classes, or the benchmark transformer. Throws UsageError for another model.
[[nodiscard]] Subject make_subject(const SubjectOptions& options, int rank);

}  // namespace lockstep
