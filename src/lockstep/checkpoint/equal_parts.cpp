#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/equal_parts_internal.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

constexpr std::int64_t kComparedBytes = 4096;

std::uint64_t digest_of(const std::string& name, const at::Tensor& tensor) {
  auto text = fmt::format("{} {} {}", name, c10::toString(tensor.scalar_type()),
                          fmt::join(tensor.sizes(), " "));
  const auto count = std::min(tensor.numel(), kComparedBytes / tensor.element_size());
  // In the order of memory, so that nothing is copied of a tensor in channels-last memory.
  const auto all = tensor.is_non_overlapping_and_dense() ? tensor.as_strided({tensor.numel()}, {1})
                                                         : tensor.reshape({-1});
  const auto first = all.narrow(0, 0, count).contiguous().cpu();
  text.append(static_cast<const char*>(first.const_data_ptr()), first.nbytes());
  return digest(std::as_bytes(std::span(text)));
}

// 0 for a part without such tensors.
std::uint64_t digest_of(Tracked& part) {
  if (part.is_per_rank()) return 0;
  const at::NoGradGuard off;
  const auto named = part.named_tensors();
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < part.num_equal(named); ++i) {
    digests.push_back(digest_of(named[i].first, named[i].second));
  }
  return digests.empty() ? 0 : digest(std::as_bytes(std::span(digests)));
}

}  // namespace

void expect_equal_parts(const Parts& parts, const ProcessGroup& group) {
  if (group.size() == 1) return;
  std::vector<std::uint64_t> own;
  for (const auto& part : parts) own.push_back(digest_of(*part.second));
  const auto all = gather_values(group, std::span<const std::uint64_t>(own),
                                 {.name = "digests of what is saved once"});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto other = std::find_if(all.begin(), all.end(), [&](const auto& digests) {
      return i >= digests.size() || digests[i] != all[0][i];
    });
    if (other == all.end()) continue;
    throw UsageError(fmt::format(
        "the tensors of \"{}\" ({}) differ between rank 0 and rank {}, and a checkpoint has one "
        "copy of them: that of rank 0. If each rank has its own, return them from rank_tensors(); "
        "if each has a part of a whole, from sharded_tensors() (checkpoint/tracked.h). For an "
        "optimizer of torch::optim over the shards of a rank, use one of lockstep",
        parts[i].first, parts[i].second->kind(),
        group.global_rank(static_cast<int>(other - all.begin()))));
  }
}

}  // namespace lockstep
