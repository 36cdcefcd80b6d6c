// How fast a rank sends to the other ranks, as its kernel counts it, and which rank or link is
// slow. Pure functions; the transport reads the counts.
//
// A rate is the bytes that a peer's kernel has acknowledged per second in which bytes were on their
// way. Times in which the peer did not read are left out, so that a rank that computes longer does
// not look like a slow link.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The data connection to one peer, since it was made.
struct LinkCount {
  int peer = 0;             // global rank
  double bytes = 0;         // acknowledged
  double busy_seconds = 0;  // bytes were on their way, and the peer had room for them

  friend bool operator==(const LinkCount&, const LinkCount&) = default;
};

/// Rates of one rank in an interval. 0: too little was sent to tell.
struct LinkSpeeds {
  int slowest_peer = -1;
  double slowest_mb_per_s = 0;
  double fastest_mb_per_s = 0;
};

/// The rates between two counts. A peer counts if it has got at least 64 KiB.
[[nodiscard]] LinkSpeeds link_speeds(std::span<const LinkCount> before,
                                     std::span<const LinkCount> now);

struct RankSpeeds {
  int rank = 0;
  LinkSpeeds speeds = {};
};

struct SlowLink {
  std::optional<int> rank = {};  // whose links are slow; nullopt: one link between two ranks
  std::string text = {};         // "the links of rank 2 move 12.1 MB/s, others 940.0 MB/s"
};

/// The rank or link that is at least three times slower than others; nullopt if there is none, or
/// nothing to compare it with.
[[nodiscard]] std::optional<SlowLink> find_slow_link(std::span<const RankSpeeds> ranks);

}  // namespace lockstep
