// The functions of NCCL that the transport nccl calls, as a table, with the rules of
// device_functions.h. Two implementations: NCCL itself, the copy that LibTorch loads (by dlopen),
// and the double of the tests.
//
// Communicators are non-blocking: a function may return before its work is enqueued or before the
// communicator is ready; query() tells. Data types and reductions are those of kernels/dtype.h.
//
// NCCL's sockets have no authentication: a process that knows an id can connect. They are bound to
// one network interface (bind_nccl_to).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/kernels/dtype.h"

namespace lockstep {

/// How the transport nccl reduces: exact, with the bits of all transports; or fast, sums and
/// averages of floating point by NCCL, in an order that depends on its choice of algorithm.
enum class NcclReduction : std::uint8_t { exact, fast };
[[nodiscard]] constexpr std::string_view to_string(NcclReduction reduction) noexcept {
  return reduction == NcclReduction::exact ? "exact" : "fast";
}

/// Created by one rank of a communicator, needed by all.
using NcclId = std::array<std::byte, 128>;

class NcclFunctions {
 public:
  NcclFunctions() = default;
  NcclFunctions(const NcclFunctions&) = delete;
  NcclFunctions& operator=(const NcclFunctions&) = delete;
  virtual ~NcclFunctions() = default;

  /// 2.28.9 is 22809.
  virtual DeviceStatus version(int& version) = 0;
  virtual DeviceStatus make_id(NcclId& id) = 0;
  /// Starts to connect rank `rank` of `size` on the current device.
  virtual DeviceStatus connect(void*& communicator, const NcclId& id, int rank, int size) = 0;
  /// `ready`: nothing is in progress on the host's side. Fails with the asynchronous error of the
  /// communicator, if there is one.
  virtual DeviceStatus query(void* communicator, bool& ready) = 0;
  /// Ends the communicator in order: all ranks call finalize(), then destroy().
  virtual DeviceStatus finalize(void* communicator) = 0;
  virtual DeviceStatus destroy(void* communicator) = 0;
  /// Ends it, also with kernels that wait for a dead rank: these end at once. It is freed: no other
  /// thread may use it at the same time or later. Returns when the CUDA graphs that contain its
  /// calls have been destroyed.
  virtual DeviceStatus abort(void* communicator) = 0;

  // Between start_group() and end_group(), the calls of one communicator start together.
  virtual DeviceStatus start_group() = 0;
  virtual DeviceStatus end_group() = 0;
  virtual DeviceStatus send(const std::byte* from, std::size_t bytes, int to, void* communicator,
                            void* stream) = 0;
  virtual DeviceStatus receive(std::byte* to, std::size_t bytes, int from, void* communicator,
                               void* stream) = 0;
  /// `bytes` per rank.
  virtual DeviceStatus all_gather(std::byte* to, const std::byte* from, std::size_t bytes,
                                  void* communicator, void* stream) = 0;
  virtual DeviceStatus all_to_all(std::byte* to, const std::byte* from, std::size_t bytes,
                                  void* communicator, void* stream) = 0;
  virtual DeviceStatus broadcast(std::byte* memory, std::size_t bytes, int root, void* communicator,
                                 void* stream) = 0;
  /// Reduces in the order of NCCL's choice. Only sum and average of floating point.
  virtual DeviceStatus all_reduce(std::byte* to, const std::byte* from, std::size_t count,
                                  DType dtype, ReduceOp op, void* communicator, void* stream) = 0;
};

struct LoadedNccl {
  std::shared_ptr<NcclFunctions> functions;  // null if not available
  std::string why;                           // why not; otherwise the version: "2.28.9"
};

/// The copy of NCCL that this process has loaded, which is LibTorch's; loads one if there is none.
[[nodiscard]] LoadedNccl load_nccl();
[[nodiscard]] inline std::shared_ptr<NcclFunctions> nccl_functions() {
  return load_nccl().functions;
}

/// Where the ratio of exact to fast reductions is kept: lockstep/nccl_ratios.json in
/// XDG_CACHE_HOME, else in ~/.cache; empty if neither is known.
[[nodiscard]] std::filesystem::path nccl_ratio_file(const Environment& environment);

/// The network interface that has `address`: "lo", "eth0". Throws UsageError if there is none.
[[nodiscard]] std::string interface_of(const std::string& address);
/// Makes NCCL use only this interface for its connections, unless NCCL_SOCKET_IFNAME is set. Call
/// it before the first function of NCCL: it sets that variable in the environment of the process,
/// the only way that NCCL offers.
void bind_nccl_to(const std::string& interface);

}  // namespace lockstep
