// Reductions between members in few transfers, in the order of the reduction tree over the members
// (kernels/leaf_tree.h), and the choice between them and the direct exchange. Pure.
//
// Terms: the members of an exchange are ranks, or hosts whose ranks form aligned subtrees, numbered
// from 0. A *block* of level k has the members [i · 2^k, (i + 1) · 2^k), as far as they exist: the
// blocks are the nodes of the tree. At level k, each block of even number i is combined with block
// i + 1. Only the last block of a level can be *short*; it is never the even one of a pair.
//
// Doubling: both blocks of a pair have their sums in all members. Member i of one exchanges its
// sum with member i of the other. If the second block is short, those members of the first one that
// have no partner receive the new sum from one that has it.
//
// Halving, nearest members first: the members of a full block share the elements of its sum. The
// members i of two full blocks have the sums of the same elements: each keeps one half of them. The
// elements of a short block are shared by its largest full part; they are handed over to the full
// block and its members end. Finally each element is at one *owner*. The results return on the same
// way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/fabric/host_plan.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/rendezvous/network_link.h"

namespace lockstep {

/// One transfer of a member: it sends its sums of some elements to a peer, receives the peer's sums
/// of others, and combines these with its own. Either part may be empty.
struct ExchangeTransfer {
  int peer = 0;
  std::uint32_t tag = 0;       // equal for both members; unique among the transfers between them
  Part send = {};              // elements
  LeafInterval sent = {};      // the members in the sums that it sends
  Part receive = {};           // elements
  LeafInterval received = {};  // the members in the sums that it receives
  bool replaces = false;       // what is received replaces the own sum instead
};

struct ExchangePlan {
  std::vector<ExchangeTransfer> transfers = {};
  Part owned = {};  // the elements whose sum over all members this member has after the transfers
};

/// The transfers of `member` of `size` for `count` elements. Every member owns all elements then.
[[nodiscard]] ExchangePlan plan_doubling(int member, int size, std::size_t count);
/// The same; every element has one owner then. Parts begin at multiples of `alignment`.
[[nodiscard]] ExchangePlan plan_halving(int member, int size, std::size_t count,
                                        std::size_t alignment);
/// plan_halving(…).owned, without the transfers.
[[nodiscard]] Part owned_after_halving(int member, int size, std::size_t count,
                                       std::size_t alignment);

enum class ExchangeAlgorithm {
  carried,   // every member sends its whole input with the call, and reduces all of them
  direct,    // the owner of a part receives it from all members and returns the result
  doubling,  // small inputs
  halving,   // many members
  ring,      // not in the order of the tree: only if `fast` is asked for
};
[[nodiscard]] std::string_view to_string(ExchangeAlgorithm algorithm) noexcept;

/// Larger groups never use direct.
constexpr int kMostDirect = 64;

struct ExchangeSize {
  int members = 1;
  std::size_t bytes = 0;         // of one member's input
  bool has_wide_sums = false;    // sums of several members have twice the bytes of an input
  std::size_t most_carried = 0;  // inputs up to this size may be carried by the call
  bool excludes_direct = false;
};

/// Bytes per second in which a member combines inputs and sums. Assumed.
constexpr double kCombineBandwidth = 10e9;

/// The seconds that an all_reduce takes on `link`: transfers that follow each other, messages that
/// a member sends, bytes that it sends or receives, whichever are more, and bytes that it combines.
[[nodiscard]] double seconds_of(ExchangeAlgorithm algorithm, const ExchangeSize& size,
                                const NetworkLink& link) noexcept;

/// How a group between hosts reduces. Equal on all ranks.
struct ExchangeOptions {
  NetworkLink link = {};
  bool is_fast = false;                             // sums of floating point may use the ring
  std::optional<ExchangeAlgorithm> algorithm = {};  // for tests; nullopt: chosen by the link

  friend bool operator==(const ExchangeOptions&, const ExchangeOptions&) = default;
};

/// The exact algorithm with the lowest cost.
[[nodiscard]] ExchangeAlgorithm choose_exchange(const ExchangeSize& size,
                                                const NetworkLink& link) noexcept;

}  // namespace lockstep
