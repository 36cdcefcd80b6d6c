#include "lockstep/fabric/exchange_plan.h"

#include <algorithm>
#include <array>
#include <bit>

namespace lockstep {
namespace {

// A pair of blocks that are combined at a level. The first one is full.
struct Pair {
  int level = 0;
  int first = 0;   // the first member of the first block
  int second = 0;  // of the second one
  int full = 0;    // members of the first block
  int others = 0;  // members of the second one, at most as many

  [[nodiscard]] bool is_in_first(int member) const noexcept { return member < second; }
  [[nodiscard]] LeafInterval first_members() const noexcept { return {first, second}; }
  [[nodiscard]] LeafInterval second_members() const noexcept { return {second, second + others}; }
  [[nodiscard]] LeafInterval members() const noexcept { return {first, second + others}; }
  [[nodiscard]] std::uint32_t tag() const noexcept { return static_cast<std::uint32_t>(2 * level); }
};

// The pairs of the blocks that contain `member`, from the lowest level on.
std::vector<Pair> pairs_of(int member, int size) {
  std::vector<Pair> pairs;
  for (int level = 0; (1 << level) < size; ++level) {
    const int full = 1 << level;
    const int first = member / (2 * full) * (2 * full);
    const int second = first + full;
    if (second < size) pairs.push_back({level, first, second, full, std::min(full, size - second)});
  }
  return pairs;
}

Part half_of(const Part& part, bool is_second, std::size_t alignment) {
  const auto half = part_of(part.length, is_second ? 1 : 0, 2, alignment);
  return {part.begin + half.begin, half.length};
}

// The elements of member `index` of a full block of `members`.
Part elements_of(int index, int members, std::size_t count, std::size_t alignment) {
  Part part{0, count};
  for (int bit = 1; bit < members; bit *= 2) part = half_of(part, (index & bit) != 0, alignment);
  return part;
}

int largest_power_up_to(int number) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(number)));
}

void add_doubling_transfers(const Pair& pair, int member, const Part& all,
                            std::vector<ExchangeTransfer>& transfers) {
  const bool in_first = pair.is_in_first(member);
  const int index = member - (in_first ? pair.first : pair.second);
  if (index < pair.others) {
    transfers.push_back({.peer = in_first ? pair.second + index : pair.first + index,
                         .tag = pair.tag(),
                         .send = all,
                         .sent = in_first ? pair.first_members() : pair.second_members(),
                         .receive = all,
                         .received = in_first ? pair.second_members() : pair.first_members()});
  }
  for (int have = pair.others; in_first && have < pair.full; have *= 2) {
    if (index < have && index + have < pair.full) {
      transfers.push_back(
          {.peer = member + have, .tag = pair.tag() + 1, .send = all, .sent = pair.members()});
    } else if (index >= have && index < 2 * have) {
      transfers.push_back({.peer = member - have,
                           .tag = pair.tag() + 1,
                           .receive = all,
                           .received = pair.members(),
                           .replaces = true});
    }
  }
}

double log2_up(int number) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(number) - 1U));
}

// The transfers that follow each other in doubling.
double doubling_transfers(int size) {
  double transfers = 0;
  for (int full = 1; full < size; full *= 2) {
    ++transfers;
    const int others = size % (2 * full) - full;  // of a short block; not above 0 if there is none
    for (int have = others; have > 0 && have < full; have *= 2) ++transfers;
  }
  return transfers;
}

}  // namespace

ExchangePlan plan_doubling(int member, int size, std::size_t count) {
  ExchangePlan plan{.owned = {0, count}};
  for (const auto& pair : pairs_of(member, size)) {
    add_doubling_transfers(pair, member, plan.owned, plan.transfers);
  }
  return plan;
}

ExchangePlan plan_halving(int member, int size, std::size_t count, std::size_t alignment) {
  ExchangePlan plan{.owned = {0, count}};
  for (const auto& pair : pairs_of(member, size)) {
    const bool in_first = pair.is_in_first(member);
    const int index = member - (in_first ? pair.first : pair.second);
    if (pair.others == pair.full) {
      const auto kept = half_of(plan.owned, !in_first, alignment);
      plan.transfers.push_back(
          {.peer = in_first ? pair.second + index : pair.first + index,
           .tag = pair.tag(),
           .send = half_of(plan.owned, in_first, alignment),
           .sent = in_first ? pair.first_members() : pair.second_members(),
           .receive = kept,
           .received = in_first ? pair.second_members() : pair.first_members()});
      plan.owned = kept;
      continue;
    }
    const int holders = largest_power_up_to(pair.others);
    if (in_first) {
      plan.transfers.push_back({.peer = pair.second + index % holders,
                                .tag = pair.tag(),
                                .receive = plan.owned,
                                .received = pair.second_members()});
      continue;
    }
    for (int to = index; index < holders && to < pair.full; to += holders) {
      plan.transfers.push_back({.peer = pair.first + to,
                                .tag = pair.tag(),
                                .send = elements_of(to, pair.full, count, alignment),
                                .sent = pair.second_members()});
    }
    plan.owned = {};
    break;  // this member has handed over its sums
  }
  return plan;
}

Part owned_after_halving(int member, int size, std::size_t count, std::size_t alignment) {
  const int owners = largest_power_up_to(size);
  return member < owners ? elements_of(member, owners, count, alignment) : Part{};
}

std::string_view to_string(ExchangeAlgorithm algorithm) noexcept {
  constexpr std::array kNames{"carried", "direct", "doubling", "halving", "ring"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

double seconds_of(ExchangeAlgorithm algorithm, const ExchangeSize& size,
                  const NetworkLink& link) noexcept {
  const auto members = static_cast<double>(size.members);
  const auto bytes = static_cast<double>(size.bytes);
  const double wide = size.has_wide_sums ? 2 : 1;
  const double others = members - 1;
  // A member of a short block hands over its whole sums.
  const bool is_power = std::has_single_bit(static_cast<unsigned>(size.members));
  const double least = is_power ? 2 / members : 0;
  double transfers = 0;
  double messages = 0;
  double moved = 0;
  double combined = 2 * bytes * others / members;
  switch (algorithm) {
    case ExchangeAlgorithm::carried:
      moved = others * bytes;
      combined = members * bytes;
      break;
    case ExchangeAlgorithm::direct:
    case ExchangeAlgorithm::ring:
      transfers = algorithm == ExchangeAlgorithm::direct ? 2 : 2 * others;
      messages = 2 * others;
      moved = 2 * bytes * others / members;
      if (algorithm == ExchangeAlgorithm::direct) combined = bytes;
      break;
    case ExchangeAlgorithm::doubling:
      transfers = doubling_transfers(size.members);
      messages = transfers;
      moved = bytes * (1 + wide * (transfers - 1));  // the first transfer sends inputs
      combined = 2 * bytes * log2_up(size.members);
      break;
    case ExchangeAlgorithm::halving:
      transfers = 2 * log2_up(size.members);
      messages = transfers;
      moved = bytes / 2 + wide * bytes * (0.5 - least / 2) + bytes * (1 - least / 2);
      break;
  }
  return transfers * link.latency + messages * link.message + moved / link.bandwidth +
         combined / kCombineBandwidth;
}

ExchangeAlgorithm choose_exchange(const ExchangeSize& size, const NetworkLink& link) noexcept {
  auto best = ExchangeAlgorithm::doubling;
  const auto consider = [&](ExchangeAlgorithm other) {
    if (seconds_of(other, size, link) < seconds_of(best, size, link)) best = other;
  };
  if (size.members <= kMostDirect && !size.excludes_direct) consider(ExchangeAlgorithm::direct);
  consider(ExchangeAlgorithm::halving);
  if (size.bytes <= size.most_carried) consider(ExchangeAlgorithm::carried);
  return best;
}

}  // namespace lockstep
