// For tests of lossy compression with error feedback: what was lost is still there.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {

using StateTensors = std::vector<std::pair<std::string, at::Tensor>>;

inline at::Tensor loss_of(TestNet& net, int rank, int step) {
  return net->forward(batch_of(rank, step)).square().mean();
}

// All gradients as one vector of doubles; zeros where there is none.
inline at::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& parameter : module.parameters()) {
    const auto gradient = parameter.grad();
    parts.push_back((gradient.defined() ? gradient : torch::zeros_like(parameter))
                        .detach()
                        .to(torch::kDouble)
                        .flatten());
  }
  return torch::cat(parts);
}

inline ::testing::AssertionResult is_equal_on_all_ranks(const at::Tensor& tensor,
                                                        ProcessGroup& group) {
  auto all = torch::empty({group.size() * tensor.numel()}, tensor.options());
  group.all_gather(all, tensor).wait();
  const auto rows = all.view({group.size(), -1});
  for (int rank = 1; rank < group.size(); ++rank) {
    if (!torch::equal(rows[rank], rows[0])) {
      return ::testing::AssertionFailure() << "rank " << rank << " has another result";
    }
  }
  return ::testing::AssertionSuccess();
}

// Adds what all ranks put in and what came out. Parameters do not change during such a test.
class Ledger {
 public:
  explicit Ledger(const TestNetImpl& net) : balance_(torch::zeros_like(flat_gradients(net))) {}

  /// Rank `rank` contributes `weight` times the gradient of its batch.
  void contribute(double weight, int rank, int step) {
    TestNet net;
    fill(*net, 1);
    loss_of(net, rank, step).backward();
    const auto own = flat_gradients(*net);
    balance_ += own * weight;
    largest_ = std::max(largest_, own.abs().max().item<double>() * weight);
    ++num_terms_;
  }
  /// An average over a total weight has arrived.
  void receive(const TestNetImpl& net, double total_weight) {
    balance_ -= flat_gradients(net) * total_weight;
  }
  /// The errors of all ranks are what is left.
  void expect_balance(const StateTensors& errors, ProcessGroup& group) const {
    TestNet net;
    auto own = torch::zeros_like(balance_);
    std::int64_t begin = 0;
    const std::map<std::string, at::Tensor> by_name(errors.begin(), errors.end());
    for (const auto& item : net->named_parameters()) {
      const auto found = by_name.find(item.key());
      const auto end = begin + item.value().numel();
      if (found != by_name.end()) own.slice(0, begin, end).copy_(found->second.flatten());
      begin = end;
    }
    group.all_reduce(own).wait();
    // Every term is rounded a few times to float32, and to the size of the largest sum.
    const auto bound = largest_ * num_terms_ * group.size() * 8 * 0x1p-24;
    EXPECT_LE((balance_ - own).abs().max().item<double>(), bound);
  }

 private:
  at::Tensor balance_;
  double largest_ = 0;
  int num_terms_ = 0;
};

// Three good steps, which change the state; a step in which the last rank has a NaN gradient and
// one in which its backward() fails, which do not.
inline void expect_state_survives(TestNet& net, Ddp& ddp, ProcessGroup& group,
                                  const std::function<StateTensors()>& state) {
  const auto copy = [&] {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : state()) tensors.push_back(tensor.clone());
    return tensors;
  };
  const bool is_bad = group.rank() == group.size() - 1;
  std::vector<at::Tensor> earlier;
  for (int step = 0; step < 3; ++step) {
    earlier = copy();
    loss_of(net, group.rank(), step).backward();
    net->zero_grad();
  }
  const auto before = copy();
  if (group.size() > 1) {
    EXPECT_FALSE(are_equal(before, earlier));
  }
  const double factor = is_bad ? std::numeric_limits<double>::quiet_NaN() : 1;
  (loss_of(net, group.rank(), 3) * factor).backward();
  EXPECT_TRUE(ddp.non_finite());
  EXPECT_FALSE(flat_gradients(*net).isfinite().all().item<bool>());
  net->zero_grad();
  EXPECT_TRUE(are_equal(copy(), before));

  auto loss = loss_of(net, group.rank(), 4);
  if (is_bad) {
    // The gradient of the first layer is computed last: some buckets have been reduced by then.
    net->first->weight.register_hook(
        [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("the test failed it"); });
  }
  EXPECT_ANY_THROW(loss.backward());
  net->zero_grad();
  EXPECT_TRUE(are_equal(copy(), before));
}

}  // namespace lockstep
