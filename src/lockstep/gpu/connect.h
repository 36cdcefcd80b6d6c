// Adds GPU memory to the groups of a transport for CPU memory. docs/gpu.md describes the
// transports.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/watched.h"

namespace lockstep {

struct DeviceOptions {
  BackendOptions backend = {};
  // Called at the first operation on a device: a group that uses none loads no driver.
  std::function<std::shared_ptr<DeviceFunctions>()> functions = {};
  std::function<std::shared_ptr<NcclFunctions>()> nccl = {};  // empty, or returns null: no NCCL
  NcclReduction nccl_reduction = NcclReduction::exact;        // equal on all ranks
  std::filesystem::path nccl_ratios = {};  // where exact against fast is kept; empty: not measured
  std::function<std::shared_ptr<Watcher>()> watcher = {};  // empty: nothing is watched
  // The size of a rank's buffer for data outside registered memory; equal on all ranks.
  std::size_t stage_bytes = 16U << 20;
};

/// Returns a function that connects the ranks with `host`, and whose groups support GPU memory too.
/// `host` must connect ranks of one host, through shared memory. A group of one rank supports GPU
/// memory only if a backend is requested: the caller needs no group to copy it.
[[nodiscard]] Connect connect_with_devices(Connect host, DeviceOptions options);

}  // namespace lockstep
