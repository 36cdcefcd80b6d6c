#include "lockstep/flat/gradient_slot.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Arrivals final : GradientListener {
  void on_backward() override { ++attended; }
  void before_gradient(int /*index*/, GradientState state) override {
    before.push_back(state);
    ++announced;
  }
  void after_gradient(int index) override {
    indices.push_back(index);
    ++with;
  }
  void after_undefined_gradient(int index) override {
    indices.push_back(index);
    ++without;
  }
  std::vector<int> indices;
  std::vector<GradientState> before;  // the state before each gradient
  int attended = 0;
  int announced = 0;
  int with = 0;
  int without = 0;
};

class GradientSlot : public ::testing::Test {
 protected:
  void SetUp() override {
    slots.emplace(std::vector<GradientSlots::Entry>{{"w", w, {slot, other}}});
    slots->listen(&arrivals);
  }
  [[nodiscard]] at::Tensor loss(double factor = 1) const { return (w * w).sum() * factor; }

  at::Tensor w = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  at::Tensor slot = torch::full({3}, 77.0);
  at::Tensor other = torch::full({3}, 88.0);  // the slot in a second buffer
  Arrivals arrivals;
  std::optional<GradientSlots> slots;
};

TEST_F(GradientSlot, TakesTheFirstGradientAndAddsTheNext) {
  loss().backward();
  EXPECT_TRUE(torch::equal(slot, torch::tensor({2.0, 4.0, 6.0})));
  EXPECT_TRUE(slots->is_bound(0));
  loss(10).backward();
  EXPECT_TRUE(torch::equal(slot, torch::tensor({22.0, 44.0, 66.0})));
  EXPECT_EQ(arrivals.with, 2);
  EXPECT_EQ(arrivals.announced, 2);
}

TEST_F(GradientSlot, StartsAgainWhenTheUserResetsTheGradient) {
  loss().backward();
  w.mutable_grad() = at::Tensor();
  EXPECT_FALSE(slots->is_bound(0));
  loss().backward();
  EXPECT_TRUE(torch::equal(w.grad(), torch::tensor({2.0, 4.0, 6.0})));
  w.grad().zero_();
  loss().backward();
  EXPECT_TRUE(torch::equal(slot, torch::tensor({2.0, 4.0, 6.0})));
}

TEST_F(GradientSlot, AddsToAGradientThatTheUserAssigned) {
  w.mutable_grad() = torch::full({3}, 100.0);
  loss().backward();
  EXPECT_TRUE(torch::equal(slot, torch::tensor({102.0, 104.0, 106.0})));
  EXPECT_EQ(w.grad().data_ptr(), slot.data_ptr());
  w.mutable_grad() = torch::full({3}, 5.0);
  EXPECT_TRUE(slots->move_in_assigned(0));
  EXPECT_TRUE(torch::equal(slot, torch::full({3}, 5.0)));
  EXPECT_FALSE(slots->move_in_assigned(0));
}

TEST_F(GradientSlot, NotesNonFiniteGradientsUntilAFreshOneComes) {
  loss().backward();
  EXPECT_FALSE(slots->non_finite(0, 0));
  loss(std::numeric_limits<double>::infinity()).backward();
  EXPECT_TRUE(slots->non_finite(0, 0));
  loss().backward();
  EXPECT_TRUE(slots->non_finite(0, 0));
  w.mutable_grad() = at::Tensor();
  loss().backward();
  EXPECT_FALSE(slots->non_finite(0, 0));
}

TEST_F(GradientSlot, KeepsTheGradientsOfEachBuffer) {
  loss(std::numeric_limits<double>::infinity()).backward();
  slots->use_buffer(1);
  EXPECT_FALSE(w.grad().defined()) << "no gradient in the second yet";
  EXPECT_FALSE(slots->non_finite(0, 1));
  EXPECT_TRUE(slots->non_finite(0, 0));
  loss(10).backward();
  EXPECT_EQ(w.grad().data_ptr(), other.data_ptr());
  EXPECT_TRUE(torch::equal(other, torch::tensor({20.0, 40.0, 60.0})));
  slots->use_buffer(0);
  EXPECT_EQ(w.grad().data_ptr(), slot.data_ptr());
  EXPECT_TRUE(slots->non_finite(0, 0));
  EXPECT_EQ(slots->state(0, 1), GradientState::fresh);
  w.mutable_grad() = at::Tensor();
  slots->use_buffer(1);
  EXPECT_EQ(slots->state(0, 0), GradientState::absent) << "the user reset it";
  w.mutable_grad() = torch::full({3}, 5.0);
  slots->use_buffer(0);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(torch::equal(other, torch::full({3}, 5.0))) << "assigned while the second was in use";
  slots->drop(1);
  slots->use_buffer(1);
  EXPECT_FALSE(w.grad().defined());
}

TEST_F(GradientSlot, PassesItsStateWithEachGradient) {
  using State = GradientState;
  loss().backward();
  loss().backward();
  slots->mark_stale(0);
  EXPECT_EQ(slots->state(0), State::stale);
  loss().backward();
  w.mutable_grad() = torch::full({3}, 5.0);
  EXPECT_EQ(slots->state(0), State::assigned);
  loss().backward();
  EXPECT_EQ(arrivals.before,
            (std::vector{State::absent, State::fresh, State::stale, State::assigned}));
  EXPECT_EQ(slots->state(0), State::fresh);
  EXPECT_EQ(arrivals.attended, 8) << "before each gradient and after it";
}

TEST_F(GradientSlot, LetsTheListenerChooseTheBufferBeforeTheStateIsRead) {
  struct Chooser final : GradientListener {
    explicit Chooser(GradientSlots& the_slots) : slots(the_slots) {}
    void on_backward() override { slots.use_buffer(1); }
    void before_gradient(int /*index*/, GradientState state) override { found = state; }
    void after_gradient(int /*index*/) override {}
    void after_undefined_gradient(int /*index*/) override {}
    GradientSlots& slots;
    std::optional<GradientState> found;
  } chooser(*slots);
  loss().backward();
  slots->listen(&chooser);
  loss(10).backward();
  EXPECT_EQ(chooser.found, GradientState::absent) << "the state in the second buffer";
  EXPECT_TRUE(torch::equal(other, torch::tensor({20.0, 40.0, 60.0})));
  EXPECT_TRUE(torch::equal(slot, torch::tensor({2.0, 4.0, 6.0})));
}

TEST_F(GradientSlot, CollectsWhatAReductionReads) {
  EXPECT_EQ(slots->collect(0), GradientState::absent);
  w.mutable_grad() = torch::full({3}, 5.0);
  EXPECT_EQ(slots->collect(0), GradientState::fresh) << "assigned by hand";
  EXPECT_TRUE(torch::equal(slot, torch::full({3}, 5.0)));
  slots->mark_stale(0);
  EXPECT_EQ(slots->collect(0), GradientState::stale);
  loss().backward();
  w.mutable_grad() = at::Tensor();
  EXPECT_EQ(slots->collect(0), GradientState::absent) << "the user reset it after it arrived";
  slots->bind(0);
  EXPECT_EQ(slots->state(0), GradientState::stale) << "the gradient that arrived is gone";
}

TEST_F(GradientSlot, StaysFreshOrStaleWhenAStepMovesInAnAssignedGradient) {
  w.mutable_grad() = torch::full({3}, 5.0);
  EXPECT_TRUE(slots->move_in_assigned(0));
  EXPECT_EQ(slots->state(0), GradientState::stale);
  loss().backward();
  w.mutable_grad() = torch::full({3}, 6.0);
  EXPECT_TRUE(slots->move_in_assigned(0));
  EXPECT_EQ(slots->state(0), GradientState::fresh);
}

TEST_F(GradientSlot, HasAStateInEachBuffer) {
  using State = GradientState;
  loss().backward();
  slots->use_buffer(1);
  loss().backward();
  slots->mark_stale(0);
  EXPECT_EQ(slots->state(0, 0), State::stale);
  EXPECT_EQ(slots->state(0, 1), State::fresh);
  EXPECT_TRUE(slots->any(State::stale, 0));
  EXPECT_FALSE(slots->any(State::fresh, 0));
  EXPECT_TRUE(slots->any(State::fresh, 1));
  slots->use_buffer(0);
  EXPECT_EQ(slots->state(0), State::stale);
  slots->mark_stale(1);
  EXPECT_EQ(slots->state(0, 1), State::stale);
  slots->drop(1);
  EXPECT_EQ(slots->state(0, 1), State::absent);
}

TEST_F(GradientSlot, KeepsUserHooksAndAutogradGrad) {
  int hooks = 0;
  w.register_hook([&](const at::Tensor& gradient) {
    ++hooks;
    return gradient * 2;
  });
  loss().backward();
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(torch::equal(slot, torch::tensor({4.0, 8.0, 12.0})));
  const auto direct = torch::autograd::grad({loss()}, {w});
  EXPECT_TRUE(torch::equal(direct[0], torch::tensor({4.0, 8.0, 12.0})));
  EXPECT_EQ(arrivals.with, 1) << "autograd::grad accumulates nowhere";
}

TEST_F(GradientSlot, ReportsAnUndefinedGradient) {
  struct Nothing : torch::autograd::Function<Nothing> {
    static at::Tensor forward(torch::autograd::AutogradContext* /*c*/, const at::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*c*/,
                                                   const torch::autograd::variable_list&) {
      return {at::Tensor()};
    }
  };
  Nothing::apply(w).sum().backward();
  EXPECT_EQ(arrivals.without, 1);
  EXPECT_EQ(arrivals.attended, 1);
  EXPECT_EQ(slots->state(0), GradientState::absent);
  EXPECT_FALSE(w.grad().defined());
}

TEST_F(GradientSlot, NoticesAParameterThatMoved) {
  EXPECT_TRUE(slots->is_in_place(0));
  w.set_data(torch::ones({3}));
  EXPECT_FALSE(slots->is_in_place(0));
  EXPECT_THROW(loss().backward(), UsageError);
}

TEST_F(GradientSlot, NoticesAParameterOfAnotherDtype) {
  w.set_data(w.to(torch::kDouble));
  EXPECT_FALSE(slots->is_in_place(0));
}

TEST_F(GradientSlot, LeavesAGraphThatOutlivesItUsable) {
  auto later = loss();
  slots.reset();
  later.backward();
  EXPECT_TRUE(torch::equal(w.grad(), torch::tensor({2.0, 4.0, 6.0})));
  later.reset();
  w.mutable_grad() = at::Tensor();
  loss().backward();
  EXPECT_NE(w.grad().data_ptr(), slot.data_ptr());
  EXPECT_EQ(arrivals.with, 0);
}

TEST_F(GradientSlot, TakesGradientsOfGraphsBuiltBefore) {
  slots.reset();
  const auto older = loss();
  SetUp();
  older.backward();
  EXPECT_TRUE(torch::equal(slot, torch::tensor({2.0, 4.0, 6.0})));
  EXPECT_TRUE(slots->is_bound(0));
  EXPECT_EQ(slots->state(0), GradientState::fresh);
  EXPECT_EQ(arrivals.with, 1);
}

TEST_F(GradientSlot, RefusesAGradientThatWouldBypassTheSlot) {
  w.set_data(w.detach().to(torch::kDouble) * 1);
  w.set_data(w.detach().to(torch::kFloat));
  EXPECT_FALSE(slots->is_in_place(0));
  EXPECT_THROW(loss().backward(), UsageError);
  slots.reset();
  w.mutable_grad() = at::Tensor();
  EXPECT_NO_THROW(loss().backward()) << "the parameter is an ordinary one again";
}

TEST_F(GradientSlot, KeepsTheUsersPostAccumulateHook) {
  struct Count final : torch::autograd::PostAccumulateGradHook {
    explicit Count(int& the_calls) : calls(the_calls) {}
    void operator()(const at::Tensor& /*parameter*/) override { ++calls; }
    int& calls;
  };
  slots.reset();
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<Count>(calls));
  SetUp();
  loss().backward();
  EXPECT_EQ(calls, 1);
  slots.reset();
  loss().backward();
  EXPECT_EQ(calls, 2);
}

TEST_F(GradientSlot, KnowsWhichParametersHaveOne) {
  EXPECT_TRUE(GradientSlots::has_slot(w));
  const auto graph = loss();
  slots.reset();
  EXPECT_FALSE(GradientSlots::has_slot(w)) << "although a graph still holds the node";
  EXPECT_FALSE(GradientSlots::has_slot(torch::zeros({1}, torch::requires_grad())));
}

TEST(DestroyedGradientSlots, AreReportedOnceByTheNextGradientAndUserHooksStillRun) {
  const auto parameter = torch::zeros({3}, torch::requires_grad());
  int calls_of_user = 0;
  parameter.register_hook([&](const at::Tensor&) { ++calls_of_user; });
  const auto make = [&] {
    return std::make_unique<GradientSlots>(
        std::vector<GradientSlots::Entry>{{"w", parameter, {torch::zeros({3})}}});
  };
  std::vector<std::string> reported;
  const auto end = [&] {
    const auto slots = make();
    slots->when_gone([&](const std::string& name) { reported.push_back(name); });
  };
  end();
  {
    const auto other = make();
    parameter.sum().backward();
  }
  parameter.sum().backward();
  EXPECT_TRUE(reported.empty()) << "other slots exist";
  end();
  parameter.sum().backward();
  parameter.sum().backward();
  EXPECT_EQ(reported, std::vector<std::string>{"w"});
  EXPECT_EQ(calls_of_user, 4);
}

// Slots without memory of their own.
class LooseSlots : public ::testing::Test {
 protected:
  at::Tensor a = torch::ones({3}, torch::requires_grad());
  at::Tensor b = torch::ones({3}, torch::requires_grad());
  GradientSlots slots{{{"a", a, {{}, {}}}, {"b", b, {{}, {}}}}};
};

TEST_F(LooseSlots, HoldAGradientUntilItMoves) {
  (a * 2).sum().backward();
  (a * 3).sum().backward();
  EXPECT_EQ(slots.state(0), GradientState::fresh);
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 5.0)));
  const auto to = torch::zeros({3});
  EXPECT_EQ(slots.move_to(0, 0, to), GradientState::fresh);
  EXPECT_TRUE(torch::equal(to, torch::full({3}, 5.0)));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(slots.move_to(0, 0, to), GradientState::absent);
  EXPECT_TRUE(torch::equal(to, torch::full({3}, 5.0))) << "unchanged";
}

// Autograd computes the gradient of a Linear's weight as a view of a tensor of its own.
TEST_F(LooseSlots, HoldAGradientThatIsAViewWithoutACopy) {
  const at::Tensor weight = torch::ones({2, 3}, torch::requires_grad());
  const GradientSlots of_weight{{{"weight", weight, {{}}}}};
  const void* arrived = nullptr;
  at::Tensor kept;
  bool keeps = false;
  weight.register_hook([&](const at::Tensor& gradient) {
    EXPECT_TRUE(gradient.is_view());
    arrived = gradient.const_data_ptr();
    if (keeps && !kept.defined()) kept = gradient._base();
  });
  const auto run = [&] { at::linear(torch::full({4, 3}, 2.0), weight).sum().backward(); };
  run();
  EXPECT_EQ(weight.grad().const_data_ptr(), arrived);
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2, 3}, 8.0)));

  keeps = true;
  weight.mutable_grad().reset();
  run();
  run();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2, 3}, 16.0)));
  EXPECT_TRUE(torch::equal(kept, torch::full_like(kept, 8.0))) << "the program refers to the base";
}

// Other memory would be kept with it.
TEST_F(LooseSlots, CopyAGradientThatIsAPartOfALargerTensor) {
  const void* arrived = nullptr;
  a.register_hook([&](const at::Tensor& gradient) { arrived = gradient.const_data_ptr(); });
  torch::cat({a, torch::ones({3})}).mul(torch::full({6}, 2.0)).sum().backward();
  EXPECT_NE(a.grad().const_data_ptr(), arrived);
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 2.0)));
}

// The gradients of a and b are one tensor; what is added to one must not reach the other.
TEST_F(LooseSlots, ShareNoMemory) {
  (a + b).sum().backward();
  (a + b.view({3, 1}).squeeze(1)).sum().backward();
  (a * 10).sum().backward();
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 12.0)));
  EXPECT_TRUE(torch::equal(b.grad(), torch::full({3}, 2.0)));
}

TEST_F(LooseSlots, TakeAssignedGradientsAndLeaveTheUsersTensorAlone) {
  const auto assigned = torch::full({3}, 7.0);
  a.mutable_grad() = assigned;
  (a * 2).sum().backward();
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 9.0)));
  EXPECT_TRUE(torch::equal(assigned, torch::full({3}, 7.0)));
}

TEST_F(LooseSlots, MoveTheGradientOfAnotherBuffer) {
  (a * std::numeric_limits<double>::infinity()).sum().backward();
  slots.use_buffer(1);
  (a * 2).sum().backward();
  const auto to = torch::zeros({3});
  EXPECT_EQ(slots.move_to(0, 0, to), GradientState::fresh);
  EXPECT_TRUE(slots.non_finite(0, 0));
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 2.0)));
  slots.use_buffer(0);
  EXPECT_FALSE(a.grad().defined());
  slots.discard();
  EXPECT_EQ(slots.state(0, 1), GradientState::fresh);
  slots.drop(1);
  EXPECT_EQ(slots.state(0, 1), GradientState::absent);
}

}  // namespace
}  // namespace lockstep
