// Decides on which device text is generated. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "cli/train/config.h"

namespace lockstep::cli {

/// With fewer parameters a token takes less time on the CPU, because a GPU spends it on launches.
/// Below it one thread of the CPU is faster than several, too.
constexpr std::int64_t kLargeModel = 10'000'000;

struct GenerationDevice {
  bool is_gpu = false;
  std::string reason;  // for the user; empty if there is nothing to choose
};

/// Throws UsageError if a GPU was requested and this process can use none.
[[nodiscard]] GenerationDevice choose_generation_device(TrainDevice asked, int num_gpus,
                                                        std::int64_t num_parameters);

}  // namespace lockstep::cli
