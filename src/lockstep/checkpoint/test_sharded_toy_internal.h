// For tests: a tracked object whose tensors are divided among ranks in several ways, or whole, and
// a module beside it. Its state depends only on the number of steps, so the files of a checkpoint
// must be equal for every number of ranks and every division.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tracked.h"

namespace lockstep {

enum class Division {
  whole,     // named_tensors(): not sharded
  blocks,    // W pieces of about equal lengths
  elements,  // single elements in turn: ranks have bytes of the same words
  last,      // all elements on the last rank
};

inline std::string to_string(Division division) {
  const char* const names[] = {"whole", "blocks", "elements", "last"};
  return names[static_cast<int>(division)];
}

class ShardedToy {
 public:
  ShardedToy(Division division, int rank, int world)
      : division_(division), rank_(rank), world_(world) {
    for (const auto& whole : wholes(0)) {
      held_.push_back(division == Division::whole ? ShardedTensor{} : pieces_of(whole));
    }
    if (division == Division::whole) whole_ = wholes(0);
  }

  NamedTensors named_tensors() {
    NamedTensors all{{"equal", equal_}, {"copied", copied_.t().contiguous()}};
    all.insert(all.end(), whole_.begin(), whole_.end());
    return all;
  }
  ShardedTensors sharded_tensors() {
    return division_ == Division::whole ? ShardedTensors{} : held_;
  }
  void load_tensors(const NamedTensors& loaded) { copied_.copy_(loaded.at(1).second.t()); }

  void train() {
    ++steps_;
    set(steps_);
  }
  void set(std::int64_t steps) {
    steps_ = steps;
    const auto values = wholes(steps);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& value = values[i].second;
      if (division_ == Division::whole) whole_[i].second.copy_(value);
      for (auto& [begin, piece] : held_[i].pieces) piece.copy_(part(value, begin, piece));
    }
    equal_.copy_(at::arange(equal_.numel(), at::kFloat).mul_(static_cast<double>(steps)));
    copied_.copy_(at::arange(copied_.numel(), at::kFloat).view_as(copied_).add_(steps));
  }
  // Whether every element that this rank holds is that after `steps` steps.
  [[nodiscard]] bool is_after(std::int64_t steps) {
    ShardedToy other(division_, rank_, world_);
    other.set(steps);
    bool same = equal_.equal(other.equal_) && copied_.equal(other.copied_);
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (division_ == Division::whole) {
        same = same && whole_[i].second.equal(other.whole_[i].second);
      }
      for (std::size_t p = 0; p < held_[i].pieces.size(); ++p) {
        same = same && held_[i].pieces[p].values.equal(other.held_[i].pieces[p].values);
      }
    }
    return same;
  }

  ShardedTensors& held() { return held_; }

 private:
  // Odd lengths, so that tensors begin at 4 and 2 modulo 8 in the file; an empty one; one of
  // several pages.
  static NamedTensors wholes(std::int64_t steps) {
    const auto make = [&](at::IntArrayRef sizes, at::ScalarType dtype) {
      auto tensor = at::empty(sizes, at::kLong);
      tensor.copy_(at::arange(tensor.numel(), at::kLong).add_(1).mul_(steps).view_as(tensor));
      return tensor.remainder(251).to(dtype);
    };
    return {{"momentum", make({3, 5}, at::kFloat)}, {"a scalar", make({}, at::kFloat)},
            {"half", make({7}, at::kBFloat16)},     {"steps", make({5}, at::kLong)},
            {"empty", make({0, 3}, at::kFloat)},    {"bytes", make({13}, at::kByte)},
            {"big", make({41, 83}, at::kFloat)},    {"zz", make({1}, at::kBFloat16)}};
  }

  static at::Tensor part(const at::Tensor& whole, std::int64_t begin, const at::Tensor& piece) {
    return whole.reshape(-1).narrow(0, begin, piece.numel());
  }

  [[nodiscard]] ShardedTensor pieces_of(const std::pair<std::string, at::Tensor>& whole) const {
    const auto& [name, value] = whole;
    ShardedTensor tensor{.name = name,
                         .dtype = value.scalar_type(),
                         .sizes = {value.sizes().begin(), value.sizes().end()}};
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      tensor.pieces.push_back({begin, at::zeros({end - begin}, value.scalar_type())});
    };
    const auto count = value.numel();
    if (division_ == Division::blocks) {
      add(count * rank_ / world_, count * (rank_ + 1) / world_);  // may be empty
    } else if (division_ == Division::elements) {
      for (auto i = std::int64_t{rank_}; i < count; i += world_) add(i, i + 1);
    } else if (rank_ == world_ - 1) {
      add(0, count);
    }
    return tensor;
  }

  Division division_;
  int rank_;
  int world_;
  std::int64_t steps_ = 0;
  at::Tensor equal_ = at::zeros({5000}, at::kFloat);
  at::Tensor copied_ = at::zeros({6, 4}, at::kFloat);  // saved as a copy, transposed
  NamedTensors whole_;
  ShardedTensors held_;
};

// Parameters that are equal on all ranks, one of them not contiguous, and a buffer that differs.
struct ToyModule : torch::nn::Module {
  explicit ToyModule(int rank) {
    weight = register_parameter("weight", at::zeros({90, 70}, at::kFloat));
    strided = register_parameter("strided", at::zeros({31, 57}, at::kFloat).t());
    buffer = register_buffer("buffer", at::full({3000}, rank, at::kFloat));
  }
  void set(std::int64_t steps) {
    const at::NoGradGuard no_grad;
    for (auto& each : {weight, strided}) {
      auto target = each;
      target.copy_(at::arange(each.numel(), at::kFloat).view_as(each).add_(steps));
    }
  }
  [[nodiscard]] bool is_after(std::int64_t steps) const {
    ToyModule other(0);
    other.set(steps);
    return weight.equal(other.weight) && strided.equal(other.strided) && buffer.equal(other.buffer);
  }

  at::Tensor weight;
  at::Tensor strided;
  at::Tensor buffer;
};

}  // namespace lockstep
