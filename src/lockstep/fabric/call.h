// What one rank asks of its group: a collective with its values and memory. All ranks of a group
// make equal calls in the same order; what must be equal, and how a call reads in a message, is
// decided here. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/call_flags.h"
#include "lockstep/fabric/device.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// `count` elements each:       input              output
enum class Collective : std::uint8_t {
  all_reduce,      //          count              count
  reduce_scatter,  //          size × count       count
  all_gather,      //          count              size × count
  broadcast,       //          count, at root     count, elsewhere
  reduce,          //          count              count, at root
  gather,          //          count              size × count, at root
  scatter,         //          size × count, root count
  all_to_all,      //          size × count       size × count
  barrier,         //          none               none
  allocate,        // count is the bytes of new registered memory
  split,           // count is the bytes each rank says about itself
};
constexpr int kNumCollectives = 11;

struct Call {
  Collective kind = Collective::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  // where the kind reduces
  int root = 0;                 // where the kind has one: a rank of the group
  std::int64_t count = 0;       // elements
  std::string_view name = {};   // for people: "gradients 3"; the first kMaxCallName bytes count
  std::span<const std::byte> input = {};
  std::span<std::byte> output = {};
  Device device = {};  // where both lie
  std::optional<CallFlags> flags = {};
  std::optional<std::int64_t> weight = {};  // of this rank, for ReduceOp::weighted_average
  std::optional<LeafInterval> leaves = {};  // of the contribution; none: the rank is the leaf
};
constexpr std::size_t kMaxCallName = 47;

[[nodiscard]] std::string_view to_string(Collective kind) noexcept;
[[nodiscard]] bool reduces(Collective kind) noexcept;
[[nodiscard]] bool has_root(Collective kind) noexcept;

/// How many bytes rank `rank` of `size` reads from and writes to, by the table above.
[[nodiscard]] std::size_t input_bytes(const Call& call, int rank, int size);
[[nodiscard]] std::size_t output_bytes(const Call& call, int rank, int size);

/// Throws UsageError unless the call can be made by `rank` of `size`: a negative count, a root that
/// is none, an average of integers, a weighted average without a weight or with a negative one,
/// memory of another length. Input and output may be the same span, or the shorter one this rank's
/// piece of the longer one; all_to_all cannot be in place. No other overlap is allowed.
void expect_valid(const Call& call, int rank, int size);

/// What must be equal on all ranks, without pointers.
struct CallDescriptor {
  Collective kind = Collective::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  bool has_flags = false;
  bool has_leaves = false;
  DeviceKind device = DeviceKind::cpu;
  int root = 0;
  std::int64_t count = 0;
  char name[kMaxCallName + 1] = {};  // ends with a zero

  friend bool operator==(const CallDescriptor&, const CallDescriptor&) = default;
};

/// What a data plane tells its peers about the memory of a call; without meaning to all others.
using MemoryWords = std::array<std::uint64_t, 3>;

[[nodiscard]] CallDescriptor descriptor_of(const Call& call) noexcept;
/// Equal descriptors have equal fingerprints; others differ but once in 2^64.
[[nodiscard]] std::uint64_t fingerprint_of(const CallDescriptor& descriptor) noexcept;
/// Distinguishes call `number` from all others of the group, and equal calls whose memory differs:
/// where signatures are equal nothing else need be compared.
[[nodiscard]] std::uint64_t signature_of(const CallDescriptor& descriptor, std::uint64_t number,
                                         const MemoryWords& memory) noexcept;
/// "all_reduce(sum, 1024 × float32, \"loss\")", "broadcast(8 × int64 from rank 2)", "barrier".
[[nodiscard]] std::string to_string(const CallDescriptor& descriptor);

}  // namespace lockstep
