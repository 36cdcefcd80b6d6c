// How long an exact all-reduce of the transport nccl takes, as a multiple of a fast one. Measured
// once per card, number of ranks and size, kept in a file of the user, and printed by rank 0.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/gpu/device_transport_internal.h"
#include "lockstep/gpu/nccl_functions.h"

namespace lockstep {

struct NcclRatio {
  std::string card = {};  // "NVIDIA H200"
  int ranks = 0;
  std::size_t bytes = 0;
  double exact_us = 0;  // of one call, the slowest rank
  double fast_us = 0;

  friend bool operator==(const NcclRatio&, const NcclRatio&) = default;
};

/// The ratios that a file states; none for any text that is not such a file.
[[nodiscard]] std::vector<NcclRatio> nccl_ratios_in(std::string_view json);
[[nodiscard]] std::string to_json(std::span<const NcclRatio> ratios);

/// "nccl: an exact all-reduce takes 1.31 times as long as a fast one at 25 MiB (2 ranks, NVIDIA
/// H200)".
[[nodiscard]] std::string in_words(std::span<const NcclRatio> ratios);

/// What is measured: how the following calls reduce, and memory for them. The memory does not come
/// from Group::allocate(), which may be the function that connects the devices.
struct NcclRatioHooks {
  std::function<void(NcclReduction)> select;
  std::function<std::shared_ptr<RegisteredMemory>(std::size_t bytes)> allocate;
};

/// Measures what `file` does not have, with calls of `group`; rank 0 reads and writes the file and
/// prints. Collective. A file that cannot be written is reported, and measured again the next time.
/// Throws PeerError, SystemError.
void tune_nccl_ratios(Group& group, const DeviceTransportParts& parts,
                      const std::filesystem::path& file, const NcclRatioHooks& hooks);

}  // namespace lockstep
