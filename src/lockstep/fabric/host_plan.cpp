#include "lockstep/fabric/host_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<int> numbered_by_lowest_rank(std::span<const int> hosts) {
  std::map<int, int> numbers;
  std::vector<int> numbered;
  for (const int host : hosts) {
    const auto next = static_cast<int>(numbers.size());
    numbered.push_back(numbers.try_emplace(host, next).first->second);
  }
  return numbered;
}

// Appends the partials of the subtree over [begin, end).
void add_partials(std::span<const int> host_of, std::int64_t begin, std::int64_t end,
                  std::vector<HostPartial>& partials) {
  const auto ranks =
      host_of.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  if (std::all_of(ranks.begin(), ranks.end(), [&](int host) { return host == ranks.front(); })) {
    partials.push_back({ranks.front(), {begin, end}});
    return;
  }
  const auto middle = begin + static_cast<std::int64_t>(
                                  std::bit_floor(static_cast<std::uint64_t>(end - begin - 1)));
  add_partials(host_of, begin, middle, partials);
  add_partials(host_of, middle, end, partials);
}

std::vector<HostPartial> partials_over(std::span<const int> host_of) {
  if (host_of.empty()) throw UsageError("a group has at least one rank");
  std::vector<HostPartial> partials;
  add_partials(host_of, 0, static_cast<std::int64_t>(host_of.size()), partials);
  return partials;
}

TreePlan tree_over(const std::vector<HostPartial>& partials) {
  std::vector<LeafInterval> intervals;
  for (const auto& partial : partials) intervals.push_back(partial.ranks);
  return TreePlan::over(intervals);
}

std::string in_words(const LeafInterval& ranks) {
  if (ranks.end == ranks.begin + 1) return fmt::format("{}", ranks.begin);
  return fmt::format("{}-{}", ranks.begin, ranks.end - 1);
}

}  // namespace

Part part_of(std::size_t length, std::size_t index, std::size_t count,
             std::size_t alignment) noexcept {
  const auto each = ((length + count - 1) / count + alignment - 1) / alignment * alignment;
  const auto begin = std::min(length, index * each);
  return {begin, std::min(each, length - begin)};
}

HostPlan::HostPlan(std::span<const int> hosts)
    : host_of_(numbered_by_lowest_rank(hosts)),
      partials_(partials_over(host_of_)),
      tree_(tree_over(partials_)) {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const auto host = static_cast<std::size_t>(host_of(rank));
    if (host == ranks_.size()) ranks_.emplace_back();
    ranks_[host].push_back(rank);
  }
}

int HostPlan::num_partials_of(int host) const noexcept {
  return static_cast<int>(std::count_if(partials_.begin(), partials_.end(),
                                        [&](const auto& each) { return each.host == host; }));
}

bool HostPlan::has_rails() const noexcept {
  const auto each = ranks_.front().size();
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    if (static_cast<std::size_t>(host_of_[rank]) != rank / each) return false;
  }
  return std::has_single_bit(each) && host_of_.size() == each * ranks_.size();
}

Part HostPlan::owned_by(int rank, std::size_t count, std::size_t alignment) const noexcept {
  const auto host = static_cast<std::size_t>(host_of(rank));
  const auto& ranks = ranks_[host];
  const auto index =
      static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const auto whole = part_of(count, host, ranks_.size(), alignment);
  const auto own = part_of(whole.length, index, ranks.size(), alignment);
  return {whole.begin + own.begin, own.length};
}

int HostPlan::sender_to(int owner, int host) const {
  const auto& owners = ranks_of(host_of(owner));
  const auto index = static_cast<std::size_t>(
      std::lower_bound(owners.begin(), owners.end(), owner) - owners.begin());
  const auto& senders = ranks_of(host);
  return senders[index % senders.size()];
}

std::size_t HostPlan::bytes_sent_by(int host, std::size_t count, std::size_t element_bytes,
                                    std::size_t partial_bytes) const noexcept {
  const auto own = part_of(count, static_cast<std::size_t>(host), ranks_.size(), 1).length;
  const auto others = static_cast<std::size_t>(num_hosts() - 1);
  const bool sends_leaves =
      ranks_[static_cast<std::size_t>(host)].size() == 1;  // inputs travel as they are
  const auto reduced = static_cast<std::size_t>(num_partials_of(host)) *
                       (sends_leaves ? element_bytes : partial_bytes) * (count - own);
  return reduced + others * own * element_bytes;
}

std::string HostPlan::to_string() const {
  std::string text;
  for (int host = 0; host < num_hosts(); ++host) {
    std::vector<std::string> partials;
    for (const auto& partial : partials_) {
      if (partial.host == host) partials.push_back(in_words(partial.ranks));
    }
    text += fmt::format(
        "host {}: ranks {}; partial sums of {}; {:.1f} times the traffic of an "
        "aligned host\n",
        host, fmt::join(ranks_of(host), " "), fmt::join(partials, ", "),
        (static_cast<double>(partials.size()) + 1) / 2);
  }
  return text;
}

}  // namespace lockstep
