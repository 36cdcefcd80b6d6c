// Which partial sums the hosts of a group exchange, and which rank reduces and sends what, so that
// the result has the bits of the reduction tree over all ranks (kernels/leaf_tree.h). Pure.
//
// Terms: a host owns one part of the elements: it receives the partial sums of that part and
// reduces them. A partial is the reduced tree over a maximal whole subtree whose ranks are all on
// one host. Hosts of 1, 2, 4 or 8 aligned ranks have one partial each, others more: the partials of
// hosts with 3 and 5 ranks are [0, 2), [2, 3) and [3, 4), [4, 8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// A range of elements or bytes.
struct Part {
  std::size_t begin = 0;
  std::size_t length = 0;

  [[nodiscard]] std::size_t end() const noexcept { return begin + length; }
  friend bool operator==(const Part&, const Part&) = default;
};

/// Part `index` of `count` parts of `length` elements. Their lengths are equal, except that every
/// part begins at a multiple of `alignment` and the last ones may be shorter or empty.
[[nodiscard]] Part part_of(std::size_t length, std::size_t index, std::size_t count,
                           std::size_t alignment) noexcept;

struct HostPartial {
  int host = 0;  // index of the host in HostPlan
  LeafInterval ranks;

  friend bool operator==(const HostPartial&, const HostPartial&) = default;
};

class HostPlan {
 public:
  /// `hosts[r]` is any number that identifies the host of rank r. Ranks of one host need not be
  /// consecutive. Throws UsageError for an empty list.
  explicit HostPlan(std::span<const int> hosts);

  [[nodiscard]] int num_hosts() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(host_of_.size()); }
  /// Hosts are numbered in the order of their lowest ranks.
  [[nodiscard]] int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  /// The ranks of a host, in ascending order.
  [[nodiscard]] const std::vector<int>& ranks_of(int host) const {
    return ranks_[static_cast<std::size_t>(host)];
  }
  /// All partials, in the order of their ranks.
  [[nodiscard]] const std::vector<HostPartial>& partials() const noexcept { return partials_; }
  [[nodiscard]] int num_partials_of(int host) const noexcept;
  /// The order in which the owner of a part reduces the partials.
  [[nodiscard]] const TreePlan& tree() const noexcept { return tree_; }

  /// Whether all hosts have the same power of two of consecutive ranks. Then the ranks with the
  /// same index in their hosts, a *rail*, can exchange the partials of their hosts: the
  /// tree over the hosts is the top of the tree over the ranks.
  [[nodiscard]] bool has_rails() const noexcept;

  /// The elements that `rank` reduces and returns: each host owns an equal part, because its
  /// network card is the limit, and cuts it among its ranks.
  [[nodiscard]] Part owned_by(int rank, std::size_t count, std::size_t alignment) const noexcept;
  /// The rank of `host` that reduces the partials of `host` for the part that `owner` owns, and
  /// sends them to it. The ranks of a host share this work evenly.
  [[nodiscard]] int sender_to(int owner, int host) const;

  /// The bytes that `host` sends in one all_reduce of `count` elements of `element_bytes`, whose
  /// partials have `partial_bytes` per element (4 for the sums of 16-bit floats).
  [[nodiscard]] std::size_t bytes_sent_by(int host, std::size_t count, std::size_t element_bytes,
                                          std::size_t partial_bytes) const noexcept;
  /// One line per host: its ranks, its partials, and the traffic compared with aligned hosts.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<int> host_of_;             // by rank
  std::vector<std::vector<int>> ranks_;  // by host
  std::vector<HostPartial> partials_;
  TreePlan tree_;
};

}  // namespace lockstep
