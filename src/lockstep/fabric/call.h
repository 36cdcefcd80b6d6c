// A collective call of one rank: kind, arguments and memory. All ranks of a group make equal calls
// in the same order. This header defines which arguments must be equal, and how a call is printed
// in a message. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/owners.h"
#include "lockstep/fabric/device.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// `count` elements each:           input              output
enum class Collective : std::uint8_t {
  all_reduce,          //          count              count
  reduce_scatter,      //          size × count       count
  all_gather,          //          count              size × count
  broadcast,           //          count, at root     count, elsewhere
  reduce,              //          count              count, at root
  gather,              //          count              size × count, at root
  scatter,             //          size × count, root count
  all_to_all,          //          size × count       size × count
  reduce_to_owners,    //          count              in place: what this rank owns
  gather_from_owners,  //          what it owns       in place: what other ranks own
  barrier,             //          none               none
  allocate,            // count is the bytes of new registered memory
  split,               // count is the bytes that each rank contributes
};
constexpr int kNumCollectives = 13;

struct Call {
  Collective kind = Collective::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  // used if the kind reduces
  int root = 0;                 // used if the kind has a root: a rank of the group
  std::int64_t count = 0;       // elements
  std::string_view name = {};   // for messages: "gradients 3"; cut to kMaxCallName bytes
  std::span<const std::byte> input = {};
  std::span<std::byte> output = {};
  Device device = {};  // of input and output
  void* stream =
      nullptr;  // on a GPU: the input is ready, and the output may be written, in its order
  std::optional<CallFlags> flags = {};
  std::optional<std::int64_t> weight = {};  // of this rank, for ReduceOp::weighted_average
  std::optional<LeafInterval> leaves = {};  // of the contribution; nullopt: the rank is the leaf
  const Owners* owners = nullptr;  // of the elements, if the kind has owners; the caller keeps it
};
constexpr std::size_t kMaxCallName = 47;

[[nodiscard]] std::string_view to_string(Collective kind) noexcept;
[[nodiscard]] bool reduces(Collective kind) noexcept;
[[nodiscard]] bool has_root(Collective kind) noexcept;
[[nodiscard]] bool has_owners(Collective kind) noexcept;

/// The bytes of input and output of rank `rank` of `size`, by the table above.
[[nodiscard]] std::size_t input_bytes(const Call& call, int rank, int size);
[[nodiscard]] std::size_t output_bytes(const Call& call, int rank, int size);

/// Validates the call for rank `rank` of `size`. Throws UsageError for a negative count, an invalid
/// root, an average of integers, a weighted average without a weight or with a negative one, and a
/// span of the wrong length. Input and output may be the same span, or the shorter one may be this
/// rank's piece of the longer one; any other overlap, and every overlap of all_to_all, throws too.
/// A kind with owners needs them, for these elements and ranks, and the same span on both sides.
void expect_valid(const Call& call, int rank, int size);

/// The arguments that must be equal on all ranks, without pointers.
struct CallDescriptor {
  Collective kind = Collective::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  bool has_flags = false;
  bool has_leaves = false;
  DeviceKind device = DeviceKind::cpu;
  int root = 0;
  std::int64_t count = 0;
  std::uint64_t owners = 0;          // their digest; 0 if the kind has none
  char name[kMaxCallName + 1] = {};  // null-terminated

  friend bool operator==(const CallDescriptor&, const CallDescriptor&) = default;
};

/// Words with which a data plane describes the memory of a call to its peers; opaque to other code.
using MemoryWords = std::array<std::uint64_t, 3>;

[[nodiscard]] CallDescriptor descriptor_of(const Call& call) noexcept;
/// Equal descriptors have equal fingerprints; different ones collide with probability 2^-64.
[[nodiscard]] std::uint64_t fingerprint_of(const CallDescriptor& descriptor) noexcept;
/// The call signature. It covers the descriptor, the call number and the memory words: if
/// signatures are equal, nothing else needs to be compared.
[[nodiscard]] std::uint64_t signature_of(const CallDescriptor& descriptor, std::uint64_t number,
                                         const MemoryWords& memory) noexcept;
/// "all_reduce(sum, 1024 × float32, \"loss\")", "broadcast(8 × int64 from rank 2)", "barrier".
[[nodiscard]] std::string to_string(const CallDescriptor& descriptor);

}  // namespace lockstep
