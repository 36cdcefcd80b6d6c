// The constants of optimizer steps, which host and device compute with the same functions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/sgd_pass.h"

namespace lockstep {
namespace {

// Every squaring doubles the relative error of the power, so that it is at most t half units in the
// last place after t factors; what counts is its effect on 1 - beta^t.
TEST(StepConstants, PowersAreThoseOfTheMathLibrary) {
  for (const double base : {0.9, 0.95, 0.99, 0.999, 0.9999}) {
    for (const std::int64_t t : {1, 2, 3, 7, 64, 1000, 4097, 100'000, 2'000'000}) {
      const double exact = std::pow(base, static_cast<double>(t));
      EXPECT_NEAR(integer_power(base, t), exact, 0x1p-53 * static_cast<double>(t) * exact + 1e-300)
          << base << " to the power of " << t;
    }
  }
  EXPECT_EQ(integer_power(0.5, 0), 1);
  EXPECT_EQ(integer_power(0, 5), 0);
}

TEST(StepConstants, OfAdamFollowTheStepCount) {
  const AdamRule rule{.beta1 = 0.5, .beta2 = 0.75, .eps = 1e-7};
  const auto third = adam_step(rule, 0.1, 0.01, 3);
  EXPECT_EQ(third.step_size, 0.1 / (1 - 0.125));
  EXPECT_EQ(third.root_factor, 1 / std::sqrt(1 - 0.421875));
  EXPECT_EQ(third.decay, 0.01);
  EXPECT_EQ(third.kept, 1);
  const AdamRule decoupled{.beta1 = 0.5, .beta2 = 0.75, .decoupled = true};
  EXPECT_EQ(adam_step(decoupled, 0.1, 0.01, 3).decay, 0);
  EXPECT_EQ(adam_step(decoupled, 0.1, 0.01, 3).kept, 1 - 0.1 * 0.01);
}

TEST(StepConstants, OfSgdKnowTheFirstStep) {
  const SgdRule rule{.momentum = 0.9, .nesterov = true};
  EXPECT_TRUE(sgd_step(rule, 0.1, 0.2, 1).is_first);
  const auto second = sgd_step(rule, 0.1, 0.2, 2);
  EXPECT_FALSE(second.is_first);
  EXPECT_EQ(second.lr, 0.1);
  EXPECT_EQ(second.decay, 0.2);
  EXPECT_EQ(second.momentum, 0.9);
  EXPECT_TRUE(second.nesterov);
}

}  // namespace
}  // namespace lockstep
