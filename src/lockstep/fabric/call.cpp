#include "lockstep/fabric/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

// How many times `count` elements each side has: zero, one, or one per rank; and which ranks have
// that side.
enum class Extent : std::uint8_t { none, one, each };
enum class Holder : std::uint8_t { all, root, others };
struct Side {
  Extent extent = Extent::none;
  Holder holder = Holder::all;
};

struct Facts {
  std::string_view name;
  Side input;
  Side output;
  bool reduces = false;
  bool has_root = false;
  bool has_owners = false;
};

constexpr std::array<Facts, kNumCollectives> kFacts{{
    {"all_reduce", {Extent::one}, {Extent::one}, true},
    {"reduce_scatter", {Extent::each}, {Extent::one}, true},
    {"all_gather", {Extent::one}, {Extent::each}},
    {"broadcast", {Extent::one, Holder::root}, {Extent::one, Holder::others}, false, true},
    {"reduce", {Extent::one}, {Extent::one, Holder::root}, true, true},
    {"gather", {Extent::one}, {Extent::each, Holder::root}, false, true},
    {"scatter", {Extent::each, Holder::root}, {Extent::one}, false, true},
    {"all_to_all", {Extent::each}, {Extent::each}},
    {"reduce_to_owners", {Extent::one}, {Extent::one}, true, false, true},
    {"gather_from_owners", {Extent::one}, {Extent::one}, false, false, true},
    {"barrier", {}, {}},
    {"allocate", {}, {}},
    {"split", {Extent::one}, {Extent::each}},
}};

const Facts& facts_of(Collective kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  LOCKSTEP_ASSERT(index < kFacts.size(), "invalid Collective");
  return kFacts[index];
}

std::size_t bytes_of(const Side& side, const Call& call, int rank, int size) {
  const bool holds =
      side.holder == Holder::all || (side.holder == Holder::root) == (rank == call.root);
  if (!holds || side.extent == Extent::none) return 0;
  const auto times = side.extent == Extent::each ? static_cast<std::size_t>(size) : 1U;
  return static_cast<std::size_t>(call.count) * times * bytes_of(call.dtype);
}

void expect_bytes(const Call& call, std::string_view side, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  throw UsageError(fmt::format("{} requires an {} of {} bytes on this rank, not {}",
                               to_string(descriptor_of(call)), side, wanted, found));
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

// True if no other rank reads the memory that this rank writes: both sides are the same span, or
// the shorter one is this rank's piece of the longer one.
bool works_in_place(const Call& call, int rank, std::size_t piece_bytes) {
  const auto offset = static_cast<std::size_t>(rank) * piece_bytes;
  if (call.input.size() == call.output.size()) return call.input.data() == call.output.data();
  return call.input.size() > call.output.size() ? call.output.data() == call.input.data() + offset
                                                : call.input.data() == call.output.data() + offset;
}

void expect_owners(const Call& call, int size) {
  if (call.owners == nullptr) {
    throw UsageError(fmt::format("{} requires owners", to_string(call.kind)));
  }
  if (call.owners->count() != call.count || call.owners->num_ranks() != size) {
    throw UsageError(fmt::format(
        "{} has the owners of {} elements among {} ranks, but {} elements and a group of {} ranks",
        to_string(call.kind), call.owners->count(), call.owners->num_ranks(), call.count, size));
  }
  if (call.input.data() == call.output.data()) return;
  throw UsageError(fmt::format("{} works in place: input and output must be the same span",
                               to_string(call.kind)));
}

}  // namespace

std::string_view to_string(Collective kind) noexcept { return facts_of(kind).name; }
bool reduces(Collective kind) noexcept { return facts_of(kind).reduces; }
bool has_root(Collective kind) noexcept { return facts_of(kind).has_root; }
bool has_owners(Collective kind) noexcept { return facts_of(kind).has_owners; }

std::size_t input_bytes(const Call& call, int rank, int size) {
  return bytes_of(facts_of(call.kind).input, call, rank, size);
}

std::size_t output_bytes(const Call& call, int rank, int size) {
  return bytes_of(facts_of(call.kind).output, call, rank, size);
}

void expect_valid(const Call& call, int rank, int size) {
  if (call.count < 0) {
    throw UsageError(fmt::format("{} has count {}; a count must not be negative",
                                 to_string(call.kind), call.count));
  }
  if (has_root(call.kind) && (call.root < 0 || call.root >= size)) {
    throw UsageError(fmt::format("{} names rank {} as its root, but the group has ranks 0 to {}",
                                 to_string(call.kind), call.root, size - 1));
  }
  if (reduces(call.kind)) expect_valid({call.dtype, call.op});
  if (reduces(call.kind) && call.op == ReduceOp::weighted_average && call.weight.value_or(-1) < 0) {
    throw UsageError("a weighted average requires a weight of at least 0: set CallOptions::weight");
  }
  expect_bytes(call, "input", call.input.size(), input_bytes(call, rank, size));
  expect_bytes(call, "output", call.output.size(), output_bytes(call, rank, size));
  if (has_owners(call.kind)) return expect_owners(call, size);
  if (!overlap(call.input, call.output)) return;
  if (call.kind == Collective::all_to_all) {
    throw UsageError("all_to_all in place is unsupported: input and output overlap");
  }
  if (!works_in_place(call, rank, static_cast<std::size_t>(call.count) * bytes_of(call.dtype))) {
    throw UsageError(fmt::format(
        "input and output of {} overlap where other ranks still read; for an in-place call pass "
        "the same span as both, or the shorter one as this rank's piece of the longer one",
        to_string(descriptor_of(call))));
  }
}

CallDescriptor descriptor_of(const Call& call) noexcept {
  CallDescriptor descriptor{.kind = call.kind,
                            .dtype = call.dtype,
                            .op = reduces(call.kind) ? call.op : ReduceOp::sum,
                            .has_flags = call.flags.has_value(),
                            .has_leaves = call.leaves.has_value(),
                            .device = call.device.kind,
                            .root = has_root(call.kind) ? call.root : 0,
                            .count = call.count,
                            .owners = call.owners == nullptr ? 0 : call.owners->digest()};
  std::copy_n(call.name.begin(), std::min(call.name.size(), kMaxCallName), descriptor.name);
  return descriptor;
}

std::uint64_t fingerprint_of(const CallDescriptor& descriptor) noexcept {
  // Word by word; each is mixed with all before it (the finalizer of splitmix64).
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  std::uint64_t state = static_cast<std::uint64_t>(descriptor.kind) |
                        static_cast<std::uint64_t>(descriptor.dtype) << 8 |
                        static_cast<std::uint64_t>(descriptor.op) << 16 |
                        static_cast<std::uint64_t>(descriptor.has_flags) << 24 |
                        static_cast<std::uint64_t>(descriptor.has_leaves) << 25 |
                        static_cast<std::uint64_t>(descriptor.device) << 26 |
                        static_cast<std::uint64_t>(descriptor.root) << 32;
  state = mix(state + 0x9E3779B97F4A7C15U);
  state = mix(state ^ static_cast<std::uint64_t>(descriptor.count));
  if (descriptor.owners != 0) state = mix(state ^ descriptor.owners);
  for (std::size_t i = 0; i < sizeof(descriptor.name) && descriptor.name[i] != 0; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, descriptor.name + i, sizeof(word));
    state = mix(state ^ word) + i;
  }
  return state;
}

std::uint64_t signature_of(const CallDescriptor& descriptor, std::uint64_t number,
                           const MemoryWords& memory) noexcept {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93U;
    return x ^ (x >> 32);
  };
  auto signature = fingerprint_of(descriptor) ^ (number * 0x9E3779B97F4A7C15U);
  for (const auto word : memory) signature = mix(signature + word);
  return signature;
}

std::string to_string(const CallDescriptor& descriptor) {
  const auto kind = descriptor.kind;
  const std::string_view name = descriptor.name;
  if (kind == Collective::barrier && name.empty()) return std::string(to_string(kind));
  std::vector<std::string> parts;
  if (reduces(kind)) parts.emplace_back(to_string(descriptor.op));
  if (kind == Collective::allocate || kind == Collective::split) {
    parts.push_back(fmt::format("{} bytes", descriptor.count));
  } else if (kind != Collective::barrier) {
    parts.push_back(fmt::format("{} × {}", descriptor.count, to_string(descriptor.dtype)));
  }
  const bool outwards = kind == Collective::broadcast || kind == Collective::scatter;
  if (has_root(kind)) {
    parts.back() += fmt::format(" {} rank {}", outwards ? "from" : "to", descriptor.root);
  }
  if (descriptor.device != DeviceKind::cpu) parts.emplace_back("on CUDA");
  if (has_owners(kind)) parts.push_back(fmt::format("owners {:08x}", descriptor.owners >> 32));
  if (descriptor.has_flags) parts.emplace_back("with flags");
  if (descriptor.has_leaves) parts.emplace_back("with leaves stated");
  if (!name.empty()) parts.push_back(fmt::format("\"{}\"", name));
  return fmt::format("{}({})", to_string(kind), fmt::join(parts, ", "));
}

}  // namespace lockstep
