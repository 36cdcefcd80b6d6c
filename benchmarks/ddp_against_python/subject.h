// What a rank of the comparison trains: a model with the weights that Python's has, and one batch
// that stays where it is. The other side is ddp_step.py.
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
  std::int64_t size = 0;   // of mlp the width, of transformer the length of a sequence
  std::int64_t batch = 0;  // samples or sequences a rank
};

struct Subject {
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor()> loss;  // forward over the batch
};

/// The model for every rank, the batch for `rank`: 8 hidden layers of one width and a head of 10
/// classes, or the benchmark transformer. Throws UsageError for another model.
[[nodiscard]] Subject make_subject(const SubjectOptions& options, int rank);

}  // namespace lockstep
