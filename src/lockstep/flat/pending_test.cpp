// Numbers on the CPU; tests/gpu has those on a GPU.
#include "lockstep/flat/pending.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(Pending, IsTheNumberOnTheCpu) {
  const Pending<double> number(2.5);
  EXPECT_EQ(number.item(), 2.5);
  EXPECT_EQ(number, 2.5);
  EXPECT_GT(number, 2);
  EXPECT_TRUE(std::isfinite(number));
  EXPECT_FALSE(number.is_on_device());
  EXPECT_EQ(Pending<double>(), 0);
}

TEST(Pending, ReadsATensorOfTheCpuAtOnce) {
  auto tensor = torch::full({1, 1}, 3.0F).requires_grad_();
  const Pending<double> number(tensor);
  tensor.detach().fill_(4);
  EXPECT_EQ(number, 3.0);
  EXPECT_FALSE(Pending<bool>(torch::zeros({}, torch::kInt)).item());
  EXPECT_TRUE(Pending<bool>(torch::full({}, 7, torch::kInt)).item());
}

TEST(Pending, Adds) {
  Pending<double> sum;
  const auto before = sum;
  sum += 0.1;
  sum += Pending<double>(0.2);
  EXPECT_EQ(sum, 0.1 + 0.2);
  EXPECT_EQ(before, 0);
}

}  // namespace
}  // namespace lockstep
