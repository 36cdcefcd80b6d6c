// For tests of this room. One call with random data in memory of a given kind, compared with the
// oracle on every rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/fabric/test_oracle_internal.h"
#include "lockstep/gpu/test_device_suite_internal.h"

namespace lockstep {

enum class MemoryKind {
  registered,
  ordinary,
  mixed
};  // mixed: registered on even ranks, ordinary on odd ranks
enum class Form { apart, in_place };

inline constexpr std::array kMemoryKinds{MemoryKind::registered, MemoryKind::ordinary,
                                         MemoryKind::mixed};
inline constexpr std::array kDataCollectives{
    Collective::all_reduce,        Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,         Collective::reduce,         Collective::gather,
    Collective::scatter,           Collective::all_to_all,     Collective::reduce_to_owners,
    Collective::gather_from_owners};

inline bool can_be_in_place(Collective kind) {
  return kind != Collective::all_to_all && kind != Collective::broadcast;
}

// A started call, with its memory and its expected output. If its kind has owners and it states
// none, they are random; it is then in place whatever `form` says.
class CheckedCall {
 public:
  // `memory` is empty for ordinary memory; otherwise it has at least bytes_needed().
  CheckedCall(Group& group, Call call, Form form, std::span<std::byte> memory, std::uint64_t seed)
      : group_(group), form_(has_owners(call.kind) ? Form::in_place : form) {
    const int size = group.size();
    if (has_owners(call.kind) && call.owners == nullptr) {
      owners_.emplace(oracle::draw_owners(size, call.count, seed));
      call.owners = &*owners_;
    }
    call_ = call;
    const int rank = group.rank();
    const auto piece = static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
    std::vector<oracle::Bytes> inputs;
    for (int other = 0; other < size; ++other) {
      inputs.push_back(oracle::draw(call.dtype,
                                    input_bytes(call, other, size) / bytes_of(call.dtype), seed,
                                    static_cast<std::uint64_t>(group.global_rank(other))));
    }
    const auto& own = inputs[static_cast<std::size_t>(rank)];
    const auto output = output_bytes(call, rank, size);
    wanted_ = oracle::output_of(call, inputs, rank);
    const bool in_place = form_ == Form::in_place && !own.empty() && output > 0;
    const auto needed = own.size() + output + kGap;
    is_ordinary_ = memory.empty();
    if (is_ordinary_ && SuiteDevice::is_set()) {
      on_device_ = std::make_unique<SuiteMemory>(needed);
      memory = on_device_->bytes();
    } else if (is_ordinary_) {
      ordinary_.resize(needed);
      memory = ordinary_;
    }
    // In place, the shorter side is this rank's piece of the longer one; otherwise the output
    // follows the input.
    const auto offset = static_cast<std::size_t>(rank) * piece;
    std::size_t input_at = 0;
    std::size_t output_at = (own.size() + kGap - 1) / kGap * kGap;
    if (in_place) {
      input_at = own.size() < output ? offset : 0;
      output_at = own.size() > output ? offset : 0;
    }
    const auto input = memory.subspan(input_at, own.size());
    call_.input = input;
    call_.output = memory.subspan(output_at, output);
    call_ = on_device(group, call_);
    if (call_.device.kind == DeviceKind::cpu) {
      std::copy(own.begin(), own.end(), input.begin());
    } else {
      // Written by the caller's stream: the call must wait for it.
      own_ = own;
      EXPECT_TRUE(
          SuiteDevice::get()->copy(input.data(), own_.data(), own_.size(), call_.stream).ok());
    }
    operation_ = group.start(call_, nullptr);
  }

  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;
  // The caller's stream may still copy from or to the memory of this object.
  ~CheckedCall() {
    if (call_.device.kind != DeviceKind::cpu) (void)SuiteDevice::get()->synchronize(call_.stream);
  }

  [[nodiscard]] Operation& operation() { return *operation_; }

  void wait() {
    if (call_.device.kind == DeviceKind::cpu) {
      group_.wait(*operation_);
      return expect_correct(call_.output);
    }
    // Read by the caller's stream: it must wait for the end of the work.
    group_.make_wait(*operation_, call_.stream);
    found_.resize(call_.output.size());
    EXPECT_TRUE(SuiteDevice::get()
                    ->copy(found_.data(), call_.output.data(), found_.size(), call_.stream)
                    .ok());
    finish(group_, *operation_);
    EXPECT_TRUE(SuiteDevice::get()->synchronize(call_.stream).ok());
    expect_correct(found_);
  }

  void expect_correct() const { expect_correct(call_.output); }
  void expect_correct(std::span<const std::byte> found) const {
    const auto index = oracle::first_difference(call_.dtype, found, wanted_);
    EXPECT_FALSE(index) << "rank " << group_.rank() << " of " << group_.size() << ": "
                        << to_string(descriptor_of(call_)) << ", element " << *index
                        << (form_ == Form::in_place ? ", in place" : "")
                        << (is_ordinary_ ? ", ordinary memory" : ", registered memory");
  }

  static constexpr std::size_t kGap = 64;
  [[nodiscard]] static std::size_t bytes_needed(const Call& call, int size) {
    const auto piece = static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
    return piece * 2 * static_cast<std::size_t>(size) + kGap;
  }

 private:
  Group& group_;
  std::optional<Owners> owners_;
  Call call_;
  Form form_;
  bool is_ordinary_ = false;
  oracle::Bytes own_;
  oracle::Bytes found_;
  std::unique_ptr<SuiteMemory> on_device_;
  oracle::Bytes ordinary_;
  oracle::Bytes wanted_;
  std::shared_ptr<Operation> operation_;
};

// Registered memory for one call at a time; span() selects whether this rank uses it.
class CallMemory {
 public:
  CallMemory(Group& group, std::size_t bytes)
      : even_(group.rank() % 2 == 0), registered_(allocate_on_device(group, bytes)) {}

  [[nodiscard]] std::span<std::byte> span(MemoryKind kind) const {
    const bool registered = kind == MemoryKind::registered || (kind == MemoryKind::mixed && even_);
    return registered ? registered_->bytes() : std::span<std::byte>{};
  }

 private:
  bool even_;
  std::shared_ptr<RegisteredMemory> registered_;
};

}  // namespace lockstep
