// The notifications of a BackwardWatch: ends of backwards, nested graphs, failures, the order among
// several watches, and the wait for a failure on another thread.
#include "lockstep/ddp/backward_watch.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/testing/watchdog.h"

namespace lockstep {
namespace {

using Events = std::vector<std::string>;

// A watch that records its notifications and throws where the test asks for it.
struct Observer final : BackwardWatch::Listener {
  Observer(std::string the_name, Events& the_events)
      : name(std::move(the_name)), events(the_events) {}
  void ended() override {
    events.push_back(name + "ended");
    if (throws_in_ended) throw std::runtime_error(name + "cannot end");
  }
  void settle() override {
    events.push_back(name + "settled");
    if (throws_in_settle) throw std::runtime_error(name + "cannot settle");
  }
  void failed() noexcept override {
    if (in_failed) in_failed();
    events.push_back(name + "failed");
  }

  std::string name;
  Events& events;
  bool throws_in_ended = false;
  bool throws_in_settle = false;
  std::function<void()> in_failed;
  std::optional<BackwardWatch> watch{std::in_place, *this};
};

class Watch : public ::testing::Test {
 protected:
  /// A parameter whose gradients `observer` is notified of.
  at::Tensor parameter(const std::string& name, Observer& observer) {
    auto made = torch::zeros({1}, torch::requires_grad());
    made.register_hook([this, name, &observer](const at::Tensor&) {
      events.push_back(name);
      if (observer.watch) observer.watch->on_backward();
    });
    return made;
  }
  /// `x`, with an `action` that runs inside backward before the gradient of `x` is passed on.
  static at::Tensor then(const at::Tensor& x, const std::function<void()>& action) {
    auto made = x.clone();
    made.register_hook([action](const at::Tensor&) {
      const torch::AutoGradMode on(true);  // for graphs that the action builds
      action();
    });
    return made;
  }
  static std::string error_of(const at::Tensor& loss) {
    try {
      loss.sum().backward();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  [[nodiscard]] static bool runs(const Observer& observer) { return observer.watch->is_running(); }

  Events events;
  Observer first{"", events};
  at::Tensor a = parameter("a", first);
  at::Tensor b = parameter("b", first);
};

TEST_F(Watch, IsNotifiedOnceAfterTheGradientsOfEachBackward) {
  const Events once{"b", "a", "ended", "settled"};
  for (int backward = 0; backward < 2; ++backward) {
    events.clear();
    EXPECT_FALSE(runs(first));
    bool ran = false;
    (then(a, [&] { ran = runs(first); }) * b).sum().backward();
    EXPECT_EQ(events, once);
    EXPECT_TRUE(ran) << "the gradient of b arrived first";
  }
  EXPECT_FALSE(runs(first));
}

TEST_F(Watch, IsNotNotifiedOfABackwardWithoutItsParameters) {
  torch::zeros({1}, torch::requires_grad()).sum().backward();
  EXPECT_TRUE(events.empty());
}

TEST_F(Watch, IsNotifiedOfABackwardThatThrows) {
  const auto fails = [this] { return then(a, [] { throw std::runtime_error("no"); }) * b; };
  EXPECT_EQ(error_of(fails()), "no");
  EXPECT_EQ(events, (Events{"b", "failed"}));
  EXPECT_FALSE(runs(first));
  events.clear();
  (a * b).sum().backward();
  EXPECT_EQ(events.back(), "settled") << "the next backward is independent";
}

TEST_F(Watch, AnEndThatThrowsFailsTheBackward) {
  first.throws_in_ended = true;
  EXPECT_EQ(error_of(a * 1), "cannot end");
  EXPECT_EQ(events, (Events{"a", "ended", "failed"}));
  EXPECT_FALSE(runs(first));
}

TEST_F(Watch, ASettlementThatThrowsFailsTheBackward) {
  first.throws_in_settle = true;
  EXPECT_EQ(error_of(a * 1), "cannot settle");
  EXPECT_EQ(events, (Events{"a", "ended", "settled", "failed"}));
  EXPECT_FALSE(runs(first));
}

TEST_F(Watch, TheEndOfANestedBackwardIsNotTheEnd) {
  const auto inner = [&] {
    (b * 2).sum().backward();
    EXPECT_TRUE(runs(first));
    events.push_back("inner done");
  };
  then(a, inner).sum().backward();
  EXPECT_EQ(events, (Events{"b", "inner done", "a", "ended", "settled"}));
}

TEST_F(Watch, IsNotifiedOfTheEndWhenOnlyTheNestedBackwardHadAGradient) {
  const auto unwatched = torch::zeros({1}, torch::requires_grad());
  for (int backward = 0; backward < 2; ++backward) {
    events.clear();
    const auto inner = [&] {
      (b * 2).sum().backward();
      events.push_back("inner done");
    };
    then(unwatched, inner).sum().backward();
    EXPECT_EQ(events, (Events{"b", "inner done", "ended", "settled"}));
  }
}

TEST_F(Watch, IsNotifiedOnceOfTheEndAfterTwoNestedBackwards) {
  const auto inner = [&] { (b * 2).sum().backward(); };
  (then(then(a, inner), inner) * b).sum().backward();
  EXPECT_EQ(events, (Events{"b", "b", "b", "a", "ended", "settled"}));
}

TEST_F(Watch, IsNotifiedOnceOfAFailureAfterANestedBackward) {
  const auto inner = [&] {
    (b * 2).sum().backward();
    throw std::runtime_error("no");
  };
  EXPECT_EQ(error_of(then(a, inner) * b), "no");
  EXPECT_EQ(events, (Events{"b", "b", "failed"}));
  EXPECT_FALSE(runs(first));
}

TEST_F(Watch, ANestedBackwardThatFailsAndIsCaughtEndsWhatWasWatched) {
  const auto inner = [&] {
    const auto fails =
        then(torch::zeros({1}, torch::requires_grad()), [] { throw std::runtime_error("no"); });
    EXPECT_EQ(error_of(fails * b), "no");
    EXPECT_FALSE(runs(first));
  };
  (then(a, inner) * b).sum().backward();
  EXPECT_EQ(events, (Events{"b", "b", "failed", "a", "ended", "settled"}))
      << "later gradients belong to a new backward";
}

TEST_F(Watch, AllEndThenSettleInTheOrderInWhichTheyWereMade) {
  Observer second("second ", events);
  Observer third("third ", events);
  const auto c = parameter("c", second);
  const auto d = parameter("d", third);
  (then(then(a, [] {}) * c, [] {}) * d).sum().backward();
  EXPECT_EQ(events, (Events{"d", "c", "a", "third ended", "second ended", "ended", "settled",
                            "second settled", "third settled"}));
}

TEST_F(Watch, ASettlementThatThrowsFailsThoseThatHaveNotSettled) {
  Observer second("second ", events);
  Observer third("third ", events);
  const auto c = parameter("c", second);
  const auto d = parameter("d", third);
  second.throws_in_settle = true;
  EXPECT_EQ(error_of(then(then(a, [] {}) * c, [] {}) * d), "second cannot settle");
  EXPECT_EQ(Events(events.begin() + 6, events.end()),
            (Events{"settled", "second settled", "second failed", "third failed"}));
  EXPECT_FALSE(runs(first) || runs(second) || runs(third));
}

TEST_F(Watch, AnEndThatThrowsFailsAllOfItsBackward) {
  Observer second("second ", events);
  Observer third("third ", events);
  const auto c = parameter("c", second);
  const auto d = parameter("d", third);
  second.throws_in_ended = true;
  EXPECT_EQ(error_of(then(then(a, [] {}) * c, [] {}) * d), "second cannot end");
  EXPECT_EQ(std::count(events.begin(), events.end(), "failed"), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), "second failed"), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), "third failed"), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), "settled"), 0);
  EXPECT_FALSE(runs(first) || runs(second) || runs(third));
  second.throws_in_ended = false;
  events.clear();
  (a * c * d).sum().backward();
  EXPECT_EQ(Events(events.end() - 3, events.end()),
            (Events{"settled", "second settled", "third settled"}));
}

TEST_F(Watch, IsNotNotifiedAfterItsDestruction) {
  Observer second("second ", events);
  const auto c = parameter("c", second);
  const auto remove = [&] { second.watch.reset(); };
  (then(a, remove) * c).sum().backward();
  EXPECT_EQ(events, (Events{"c", "a", "ended", "settled"}));
}

// A backward on a thread of its own whose failed() does not return before release(): with
// parameters on a GPU, autograd calls it on its thread of that device.
class FailedElsewhere : public Watch {
 protected:
  void SetUp() override {
    first.in_failed = [this] {
      in_failed_.set_value();
      released_.get_future().wait();
    };
    backward_ = std::thread(
        [this] { (void)error_of(then(a, [] { throw std::runtime_error("no"); }) * b); });
    in_failed_.get_future().wait();
  }
  void TearDown() override { backward_.join(); }
  void release() { released_.set_value(); }

  /// Runs `action` on another thread. Returns whether it returned only after release().
  bool waits(const std::function<void()>& action) {
    std::atomic<bool> returned = false;
    std::thread waiting([&] {
      action();
      returned = true;
    });
    // An action that does not wait would return in this time, as a rule.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const bool waited = !returned;
    release();
    waiting.join();
    return waited;
  }

 private:
  testing::Watchdog watchdog_{std::chrono::seconds(100), [] { return "await_end() hangs"; }};
  std::promise<void> in_failed_;
  std::promise<void> released_;
  std::thread backward_;
};

TEST_F(FailedElsewhere, AwaitEndReturnsWhenTheListenerHasBeenTold) {
  Events seen;
  EXPECT_TRUE(waits([&] {
    first.watch->await_end();
    seen = events;
  }));
  EXPECT_EQ(seen, (Events{"b", "failed"}));
  EXPECT_FALSE(runs(first));
  first.watch->await_end();
}

TEST_F(FailedElsewhere, TheDestructorWaitsToo) {
  EXPECT_TRUE(waits([&] { first.watch.reset(); }));
  EXPECT_EQ(events, (Events{"b", "failed"}));
}

TEST_F(Watch, AwaitEndReturnsAtOnceInsideABackward) {
  const testing::Watchdog watchdog(std::chrono::seconds(100), [] { return "await_end() hangs"; });
  first.watch->await_end();
  bool ran = false;
  const auto awaits = [&] {
    first.watch->await_end();
    ran = runs(first);
  };
  (then(a, awaits) * b).sum().backward();
  EXPECT_TRUE(ran);
  first.watch->await_end();
  std::thread([&] { first.watch->await_end(); }).join();
}

}  // namespace
}  // namespace lockstep
