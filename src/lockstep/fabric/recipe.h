// An operation as a coroutine. A recipe runs until it needs something that other ranks, or this
// rank's device, have not done yet; then it suspends and states what it awaits.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/fabric/counters.h"

namespace lockstep {

/// Something that no counter states: the end of work on a device. Nothing wakes a rank that waits
/// for it: it asks again.
class LocalCondition {
 public:
  LocalCondition() = default;
  LocalCondition(const LocalCondition&) = delete;
  LocalCondition& operator=(const LocalCondition&) = delete;
  virtual ~LocalCondition() = default;

  /// The rank whose work is awaited, which may be this one; nullopt once the condition is
  /// fulfilled.
  [[nodiscard]] virtual std::optional<int> lagging() const noexcept = 0;
};

// What a recipe waits for: that all ranks fulfill a condition, that one word reaches a value, or a
// local condition.
struct Awaited {
  const Counters* counters = nullptr;  // null: `local` is set
  Condition condition = {};
  const std::atomic<std::uint64_t>* word = nullptr;  // if set, used instead of the condition
  std::uint64_t target = 0;
  int peer = 0;  // the rank that raises the word
  const LocalCondition* local = nullptr;
  // No later part of the recipe is awaited by other ranks: the group's next call may begin.
  bool last = false;

  // A rank that has not done its part; nullopt if all have.
  [[nodiscard]] std::optional<int> lagging() const noexcept {
    if (counters == nullptr) return local->lagging();
    if (word == nullptr) return counters->lagging(condition);
    return word->load(std::memory_order_seq_cst) < target ? std::optional(peer) : std::nullopt;
  }
  [[nodiscard]] bool lags(int rank) const noexcept {
    if (counters == nullptr) return lagging().has_value();
    return word == nullptr ? counters->lags(rank, condition) : lagging().has_value();
  }
};

class Recipe {
 public:
  struct promise_type {
    Awaited awaited;
    std::exception_ptr error;

    Recipe get_return_object() {
      return Recipe(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }

    struct Pause {
      promise_type& promise;
      Awaited what;
      bool await_ready() const noexcept { return !what.last && !what.lagging(); }
      void await_suspend(std::coroutine_handle<> /*self*/) noexcept { promise.awaited = what; }
      void await_resume() noexcept {}
    };
    Pause await_transform(const Awaited& what) noexcept { return {*this, what}; }
  };

  Recipe() = default;
  Recipe(Recipe&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Recipe& operator=(Recipe&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;
  ~Recipe() {
    if (handle_) handle_.destroy();
  }

  // Runs until the recipe awaits something that others have not done. Throws any exception of the
  // recipe.
  void advance() {
    while (!handle_.done() && !(started_ && awaited().lagging())) {
      started_ = true;
      handle_.resume();
      if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    }
  }

  /// False for an empty recipe, which has nothing to do.
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] bool done() const noexcept { return handle_.done(); }
  [[nodiscard]] const Awaited& awaited() const noexcept { return handle_.promise().awaited; }

 private:
  explicit Recipe(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_ = nullptr;
  bool started_ = false;
};

}  // namespace lockstep
