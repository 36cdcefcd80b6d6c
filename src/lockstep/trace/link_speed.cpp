#include "lockstep/trace/link_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr double kLeastBytes = 64 << 10;
constexpr double kSlow = 3;  // times slower than others

bool is_slow(double rate, double fastest) { return rate > 0 && kSlow * rate < fastest; }

}  // namespace

LinkSpeeds link_speeds(std::span<const LinkCount> before, std::span<const LinkCount> now) {
  LinkSpeeds speeds;
  for (const auto& count : now) {
    const auto earlier = std::ranges::find(before, count.peer, &LinkCount::peer);
    const auto base = earlier == before.end() ? LinkCount{} : *earlier;
    const auto bytes = count.bytes - base.bytes;
    const auto seconds = count.busy_seconds - base.busy_seconds;
    if (bytes < kLeastBytes || seconds <= 0) continue;
    const auto rate = bytes / seconds / 1e6;
    speeds.fastest_mb_per_s = std::max(speeds.fastest_mb_per_s, rate);
    if (speeds.slowest_peer >= 0 && rate >= speeds.slowest_mb_per_s) continue;
    speeds.slowest_peer = count.peer;
    speeds.slowest_mb_per_s = rate;
  }
  return speeds;
}

std::optional<SlowLink> find_slow_link(std::span<const RankSpeeds> ranks) {
  double fastest = 0;
  for (const auto& each : ranks) fastest = std::max(fastest, each.speeds.fastest_mb_per_s);
  std::vector<RankSpeeds> slow;
  std::map<int, std::size_t> links;  // slow ones, by rank
  double rate = fastest;
  for (const auto& each : ranks) {
    if (!is_slow(each.speeds.slowest_mb_per_s, fastest)) continue;
    slow.push_back(each);
    ++links[each.rank];
    ++links[each.speeds.slowest_peer];
    rate = std::min(rate, each.speeds.slowest_mb_per_s);
  }
  std::vector<int> common;  // ranks of all slow links
  for (const auto& [rank, count] : links) {
    if (count == slow.size()) common.push_back(rank);
  }
  if (common.empty()) return std::nullopt;
  // Of two ranks, the one that is slow towards every peer.
  for (const auto& each : slow) {
    if (common.size() > 1 && is_slow(each.speeds.fastest_mb_per_s, fastest)) common = {each.rank};
  }
  if (common.size() > 1) {
    return SlowLink{.text = fmt::format(
                        "the link between ranks {} and {} moves {:.1f} MB/s, others {:.1f} MB/s",
                        common[0], common[1], rate, fastest)};
  }
  return SlowLink{.rank = common.front(),
                  .text = fmt::format("the links of rank {} move {:.1f} MB/s, others {:.1f} MB/s",
                                      common.front(), rate, fastest)};
}

}  // namespace lockstep
