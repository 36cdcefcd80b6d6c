// For tests of Reducer in one thread: gradients in slots, and a scripted reduction in place of the
// other ranks.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ddp/reducer.h"

namespace lockstep {

constexpr std::int64_t kLength = 2;  // elements per parameter
constexpr double kAverage = 100;     // bucket i holds kAverage + i after its reduction
constexpr auto kInfinity = std::numeric_limits<double>::infinity();

// The other ranks as a script, and a record of this rank's calls.
class ScriptedReduction final : public BucketReduction {
 public:
  struct Call {
    std::string name;
    CallFlags flags;
    std::int64_t weight = 0;
    at::Tensor input;  // a copy from the time of the call
    int advanced = 0;
    bool waited = false;
  };

  [[nodiscard]] int num_ranks() const override { return 2; }

  [[nodiscard]] std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                  const BucketCall& call) override {
    fail_if(start_error);
    calls.push_back({std::string(call.name), call.flags, call.weight, bucket.clone()});
    return std::make_unique<ScriptedWork>(*this, calls.size() - 1, bucket);
  }

  [[nodiscard]] GroupFlags end(const GroupFlags& last) override {
    for (const auto& call : calls) EXPECT_TRUE(call.waited) << call.name;
    auto all = last;
    all.any |= end_bits;
    return all;
  }

  [[nodiscard]] std::vector<bool> combine_used(const std::vector<bool>& used) override {
    maps.push_back(used);
    auto all = used;
    for (const int parameter : used_elsewhere) all[static_cast<std::size_t>(parameter)] = true;
    return all;
  }

  // The calls of this rank.
  std::vector<Call> calls;
  std::vector<std::vector<bool>> maps;
  // The answers of the other rank.
  CallFlags other = {.sum = 1};
  std::vector<int> used_elsewhere;
  std::uint32_t end_bits = 0;  // found at the end of the step
  bool is_done = false;        // a bucket that is advanced
  int done_after = 1 << 30;    // looks at a bucket, after which it is done too
  // Of each bucket.
  std::optional<BucketCost> cost;
  WorkTimes times;
  std::string start_error;
  std::string advance_error;
  std::string wait_error;

 private:
  class ScriptedWork final : public BucketWork {
   public:
    ScriptedWork(ScriptedReduction& script, std::size_t index, at::Tensor bucket)
        : script_(script), index_(index), bucket_(std::move(bucket)) {}
    bool advance() override {
      fail_if(script_.advance_error);
      const int looks = ++script_.calls[index_].advanced;
      return script_.is_done || looks >= script_.done_after;
    }
    void wait() override {
      fail_if(script_.wait_error);
      auto& call = script_.calls[index_];
      call.waited = true;
      bucket_.fill_(kAverage + static_cast<double>(index_));
      flags_ = {};
      flags_.add(0, call.flags, call.flags);
      flags_.add(1, script_.other, call.flags);
    }
    [[nodiscard]] const GroupFlags& flags() const override { return flags_; }
    [[nodiscard]] WorkTimes times() const override { return script_.times; }
    [[nodiscard]] std::optional<BucketCost> cost() const override { return script_.cost; }

   private:
    ScriptedReduction& script_;
    std::size_t index_;
    at::Tensor bucket_;
    GroupFlags flags_;
  };

  static void fail_if(const std::string& error) {
    if (!error.empty()) throw PeerError(1, error);
  }
};

// Parameters 0 to 3 in buckets {0}, {1, 2}, {3}, one segment, two gradient buffers.
class Reduction : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<GradientSlots::Entry> entries;
    for (int i = 0; i < 4; ++i) {
      parameters.push_back(torch::zeros({kLength}, torch::requires_grad()));
      GradientSlots::Entry entry{
          std::string("weight ").append(std::to_string(i)), parameters.back(), {}};
      for (const auto& buffer : buffers) {
        entry.gradients.push_back(buffer.narrow(0, i * kLength, kLength).variable_data());
      }
      entries.push_back(std::move(entry));
    }
    slots.emplace(std::move(entries));
    const BucketPlan plan{.buckets = {{.end = 2, .parameters = {0}},
                                      {.begin = 2, .end = 6, .parameters = {1, 2}},
                                      {.begin = 6, .end = 8, .parameters = {3}}},
                          .bucket_of = {0, 1, 1, 2}};
    const auto ranges = [&](std::size_t buffer) {
      std::vector<at::Tensor> of_buckets;
      for (const auto& bucket : plan.buckets) {
        of_buckets.push_back(buffers[buffer].slice(0, bucket.begin, bucket.end));
      }
      return of_buckets;
    };
    reducer.emplace(*slots, 0, plan, ranges(0), script);
    second.emplace(*slots, 1, plan, ranges(1), script);
  }

  /// Runs a backward that gives each of `indices` a gradient of `value`.
  void give(const std::vector<int>& indices, double value) {
    for (const int i : indices) (weight(i) * value).sum().backward();
  }
  void begin(const CallFlags& flags = {.sum = 1}) { reducer->begin(flags, 7); }
  /// A whole reduction.
  GroupFlags reduce(const CallFlags& flags = {.sum = 1}) {
    begin(flags);
    reducer->start_rest();
    return reducer->finish();
  }
  [[nodiscard]] at::Tensor& weight(int i) { return parameters[static_cast<std::size_t>(i)]; }
  [[nodiscard]] ::testing::AssertionResult gradient_is(int i, double value) {
    const auto& gradient = weight(i).grad();
    if (!gradient.defined()) return ::testing::AssertionFailure() << "undefined";
    if (torch::equal(gradient, torch::full({kLength}, value))) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << gradient;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> of_calls;
    for (const auto& call : script.calls) of_calls.push_back(call.name);
    return of_calls;
  }
  [[nodiscard]] std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> of_calls;
    for (const auto& call : script.calls) of_calls.push_back(call.flags.any);
    return of_calls;
  }

  const std::vector<int> all{0, 1, 2, 3};
  std::vector<at::Tensor> buffers{torch::full({4 * kLength}, 77.0),
                                  torch::full({4 * kLength}, 88.0)};
  std::vector<at::Tensor> parameters;
  std::optional<GradientSlots> slots;
  ScriptedReduction script;
  std::optional<Reducer> reducer;  // of buffer 0, the current one
  std::optional<Reducer> second;   // of buffer 1
};

}  // namespace lockstep
