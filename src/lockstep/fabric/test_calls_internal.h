// For tests of this room. One call with random data in memory of a given kind, compared with the
// oracle on every rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/fabric/test_oracle_internal.h"

namespace lockstep {

enum class MemoryKind {
  registered,
  ordinary,
  mixed
};  // mixed: registered on even ranks, ordinary on odd ranks
enum class Form { apart, in_place };

inline constexpr std::array kMemoryKinds{MemoryKind::registered, MemoryKind::ordinary,
                                         MemoryKind::mixed};
inline constexpr std::array kDataCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                             Collective::all_gather, Collective::broadcast,
                                             Collective::reduce,     Collective::gather,
                                             Collective::scatter,    Collective::all_to_all};

inline bool can_be_in_place(Collective kind) {
  return kind != Collective::all_to_all && kind != Collective::broadcast;
}

// A started call, with its memory and its expected output.
class CheckedCall {
 public:
  // `memory` is empty for ordinary memory; otherwise it has at least bytes_needed().
  CheckedCall(Group& group, Call call, Form form, std::span<std::byte> memory, std::uint64_t seed)
      : group_(group), call_(call), form_(form) {
    const int size = group.size();
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
    const bool in_place = form == Form::in_place && !own.empty() && output > 0;
    const auto needed = own.size() + output + kGap;
    if (memory.empty()) {
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
    std::copy(own.begin(), own.end(), input.begin());
    call_.input = input;
    call_.output = memory.subspan(output_at, output);
    operation_ = group.start(call_, nullptr);
  }

  [[nodiscard]] Operation& operation() { return *operation_; }

  void wait() {
    group_.wait(*operation_);
    expect_correct();
  }

  void expect_correct() const {
    const auto index = oracle::first_difference(call_.dtype, call_.output, wanted_);
    EXPECT_FALSE(index) << "rank " << group_.rank() << " of " << group_.size() << ": "
                        << to_string(descriptor_of(call_)) << ", element " << *index
                        << (form_ == Form::in_place ? ", in place" : "")
                        << (ordinary_.empty() ? ", registered memory" : ", ordinary memory");
  }

  static constexpr std::size_t kGap = 64;
  [[nodiscard]] static std::size_t bytes_needed(const Call& call, int size) {
    const auto piece = static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
    return piece * 2 * static_cast<std::size_t>(size) + kGap;
  }

 private:
  Group& group_;
  Call call_;
  Form form_;
  oracle::Bytes ordinary_;
  oracle::Bytes wanted_;
  std::shared_ptr<Operation> operation_;
};

// Registered memory for one call at a time; span() selects whether this rank uses it.
class CallMemory {
 public:
  CallMemory(Group& group, std::size_t bytes)
      : even_(group.rank() % 2 == 0), registered_(group.allocate(bytes)) {}

  [[nodiscard]] std::span<std::byte> span(MemoryKind kind) const {
    const bool registered = kind == MemoryKind::registered || (kind == MemoryKind::mixed && even_);
    return registered ? registered_->bytes() : std::span<std::byte>{};
  }

 private:
  bool even_;
  std::shared_ptr<RegisteredMemory> registered_;
};

}  // namespace lockstep
