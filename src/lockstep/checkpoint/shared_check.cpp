#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/shared_check_internal.h"
#include "lockstep/collectives/gather_values.h"

namespace lockstep {
namespace {

// The place of this rank among the ranks of its host.
FileSlice slice_of(const World& world) {
  FileSlice slice{0, 0};
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    if (rank < world.rank()) ++slice.index;
    ++slice.count;
  }
  return slice;
}

// Of the first rank that has an error.
std::string first_error(const ProcessGroup& group, const std::string& own) {
  const auto errors =
      gather_values(group, std::string_view(own), {.name = "errors of a checkpoint"});
  for (const auto& error : errors) {
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace

std::string shared_check(FileSystem& files, const ValidCheckpoint& checkpoint, const World& world,
                         const ProcessGroup& group) {
  const auto num_files = checkpoint.manifest.files.size();
  std::vector<std::uint64_t> own;
  std::string error;
  try {
    own = digest_files(files, checkpoint, slice_of(world));
  } catch (const Error& thrown) {
    error = fmt::format("rank {}: {}", world.rank(), thrown.what());
  }
  const auto all = gather_values(group, std::span<const std::uint64_t>(own),
                                 {.name = "digests of a checkpoint"});
  std::vector<std::vector<std::uint64_t>> of_hosts(static_cast<std::size_t>(world.num_hosts()),
                                                   std::vector<std::uint64_t>(num_files));
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto& digests = all[static_cast<std::size_t>(rank)];
    if (digests.size() != num_files) return first_error(group, error);
    auto& sums = of_hosts[static_cast<std::size_t>(world.host_of(rank))];
    for (std::size_t i = 0; i < num_files; ++i) sums[i] += digests[i];
  }
  for (const auto& sums : of_hosts) {
    if (auto fault = digest_fault(checkpoint, sums); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace lockstep
