// The part of FlatParameters that reports values which are not what the ranks wrote.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/host_copies.h"

namespace lockstep {
namespace {

const std::byte* at_element(const at::Tensor& segment, std::int64_t element) {
  return static_cast<const std::byte*>(segment.const_data_ptr()) +
         element * static_cast<std::int64_t>(segment.element_size());
}

bool are_equal(const at::Tensor& a, const at::Tensor& b, const Slot& slot) {
  return std::memcmp(at_element(a, slot.begin), at_element(b, slot.begin),
                     static_cast<std::size_t>(slot.count) * a.element_size()) == 0;
}

}  // namespace

// Graphs that hold old values must detect the write; autograd has not seen it.
void FlatParameters::note_written(bool bumps) {
  versions_.clear();
  for (const auto& parameter : parameters_) {
    if (bumps) parameter.tensor.unsafeGetTensorImpl()->bump_version();
    versions_.push_back(parameter.tensor._version());
  }
  if (!host_copies_) return;
  value_check_.note(own_shards([this](int segment) { return host_copies_->shared(segment); }));
  handed_out_ = host_copies_->num_handed_out();
}

// This rank's shards of the copy that all ranks of the host read.
ShardCheck::Memory FlatParameters::own_shards(
    const std::function<at::Tensor(int segment)>& copy) const {
  ShardCheck::Memory memory;
  for (int i = 0; i < num_segments(); ++i) {
    const auto whole = copy(i);
    for (const auto& run : shards_->runs(i)) {
      memory.push_back(whole.narrow(0, run.begin, run.count));
    }
  }
  return memory;
}

std::string FlatParameters::names_of(int segment, std::int64_t begin, std::int64_t end) const {
  std::vector<std::string> names;
  for (const auto& parameter : parameters_) {
    const auto& slot = parameter.slot;
    if (slot.segment != segment || slot.begin >= end || slot.begin + slot.count <= begin) continue;
    names.push_back(parameter.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What the program sees is compared with what was written to the shared memory. So this finds both
// foreign writes there and those of the program that autograd does not count, such as by `.data()`.
std::optional<ShardCheck::Change> FlatParameters::find_change_of_own() {
  if (host_copies_->num_handed_out() != handed_out_) {  // a checkpoint has been loaded
    host_copies_->forget_writes();
    return std::nullopt;
  }
  return value_check_.find_change(own_shards([this](int segment) { return values(segment); }));
}

void FlatParameters::report_foreign_write(const ShardCheck::Change& change) const {
  std::size_t piece = 0;
  for (int i = 0; i < num_segments(); ++i) {
    const auto width = static_cast<std::int64_t>(values(i).element_size());
    for (const auto& run : shards_->runs(i)) {
      if (piece++ != change.piece) continue;
      const auto element = [&](std::int64_t byte) { return run.begin + byte / width; };
      throw UsageError(fmt::format(
          "values of {} are not what this rank wrote in the last step, and only this rank writes "
          "them: another process has written to the shared memory, or the memory is faulty. "
          "Resume from a checkpoint",
          names_of(i, element(change.begin), element(change.end - 1) + 1)));
    }
  }
}

void FlatParameters::expect_intact() {
  if (is_torn_) {
    throw UsageError(
        "the parameters are those of two steps, because a rank was lost before share_values() "
        "returned: resume from a checkpoint");
  }
  if (!host_copies_) return;
  const auto change = find_change_of_own();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor, gradient, slot] = parameters_[i];
    const bool is_written =
        tensor._version() != versions_[i] ||
        (change && !are_equal(values(slot.segment), host_copies_->shared(slot.segment), slot));
    if (is_written) names.push_back(name);
  }
  if (names.empty()) {
    if (change) report_foreign_write(*change);
    return;
  }
  // The pages that the program has written would stay, and show old values after later steps.
  host_copies_->forget_writes();
  note_written(/*bumps=*/true);
  throw UsageError(fmt::format(
      "parameters were changed in place: {}. With Copies::per_host all ranks of a host share one "
      "copy, and this change was only in this process; it is undone. Change them before the Ddp "
      "is made, or by ddp.write_parameters([&] {{ … }}), which one rank runs for all; load "
      "checkpoints with Run::resume()",
      fmt::join(names, ", ")));
}

void FlatParameters::expect_shared() const {
  // A loaded checkpoint differs from what owned() has got.
  if (!host_copies_ || owned_.empty() || owned_copied_at_ != host_copies_->num_handed_out()) return;
  if (host_copies_->next_has_own(*shards_)) return;
  throw UsageError(
      "values of flat().owned() were changed, and no rank has received them: after each step of "
      "an optimizer over flat().owned(), call flat().share_values() on every rank");
}

}  // namespace lockstep
