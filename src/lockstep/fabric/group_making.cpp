// The creation of groups: of all ranks of a world, and of subsets of a group.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/group_making_internal.h"
#include "lockstep/fabric/store_addresses.h"

namespace lockstep {
namespace {

class SingleRankExchange final : public AddressExchange {
 public:
  void exchange(const std::string& own) override { own_ = own; }
  [[nodiscard]] std::string of(int /*rank*/) override { return own_; }

 private:
  std::string own_;
};

Membership membership_of(const World& world) {
  Membership membership;
  membership.rank = world.rank();
  membership.global_ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(membership.global_ranks.begin(), membership.global_ranks.end(), 0);
  for (int rank = 0; rank < world.size(); ++rank) {
    membership.hosts.push_back(world.host_of(rank));
    membership.addresses.push_back(world.address_of(rank));
  }
  membership.registry = world.groups();
  membership.run_dir = world.run_dir();
  membership.page = world.page();
  if (world.size() > 1) {
    membership.secret = std::make_shared<const Secret>(world.secret().copy());
  }
  return membership;
}

}  // namespace

void watch_briefly(const Watch& watch) {
  const auto limit = Deadline::after(std::chrono::milliseconds(500));
  while (!limit.expired()) {
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Through a call of the group that is split: all its ranks make it, with any color.
class Group::ParentAddressExchange final : public AddressExchange {
 public:
  ParentAddressExchange(Group& parent, std::span<const int> members)
      : parent_(parent), members_(members) {}

  void exchange(const std::string& own) override {
    LOCKSTEP_ASSERT(own.size() <= kMaxBytes, "an address has at most kMaxBytes");
    Text text{};
    std::copy(own.begin(), own.end(), text.begin());
    texts_.resize(static_cast<std::size_t>(parent_.size()));
    (void)parent_.gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(texts_)),
                         "addresses");
  }
  [[nodiscard]] std::string of(int rank) override {
    return texts_[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])].data();
  }

 private:
  using Text = std::array<char, kMaxBytes + 1>;

  Group& parent_;
  std::span<const int> members_;  // ranks of the parent, by rank
  std::vector<Text> texts_;       // by rank of the parent
};

std::uint64_t Group::gather(std::span<const std::byte> own, std::span<std::byte> all,
                            std::string_view name) {
  const Lock lock(mutex_);
  const Call call{.kind = Collective::split,
                  .count = static_cast<std::int64_t>(own.size()),
                  .name = name,
                  .input = own,
                  .output = all};
  const auto operation = start_call(call, nullptr);
  wait_for(*operation, std::nullopt);
  return operation->number;
}

std::shared_ptr<Group> Group::split(int color, int key) {
  struct Request {
    int color = 0;
    int key = 0;
  };
  const Request own{color, key};
  std::vector<Request> requests(static_cast<std::size_t>(size()));
  int number = 0;
  {
    const Lock lock(mutex_);
    number = splits_++;
  }
  const auto call_number =
      gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(requests)), {});
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (requests[static_cast<std::size_t>(other)].color == color) members.push_back(other);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return requests[static_cast<std::size_t>(a)].key < requests[static_cast<std::size_t>(b)].key;
  });

  Membership membership = membership_;
  membership.global_ranks.clear();
  membership.hosts.clear();
  membership.addresses.clear();
  for (const int member : members) {
    const auto index = static_cast<std::size_t>(member);
    membership.global_ranks.push_back(membership_.global_ranks[index]);
    membership.hosts.push_back(membership_.hosts[index]);
    membership.addresses.push_back(membership_.addresses[index]);
  }
  membership.rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  auto options = options_;
  options.name = fmt::format("{}/{}.{}", options_.name, number, color);
  const Watch watch = [&] {
    control_->poll();
    for (const int member : members) {
      if (member == rank() || !control_->is_gone(member)) continue;
      throw PeerError(global_rank(member),
                      fmt::format("{} has ended while others are in call {} {} of group {}, which "
                                  "creates group {}; see its own output for the reason",
                                  rank_in_words(member), call_number, to_string(Collective::split),
                                  options_.name, options.name));
    }
  };
  ParentAddressExchange addresses(*this, members);
  try {
    auto planes = connect_(membership, addresses, Deadline::after(options_.timeout), watch);
    return std::make_shared<Group>(std::move(membership), std::move(planes), options, connect_);
  } catch (const SystemError&) {
    watch_briefly(watch);
    throw;
  }
}

std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                  const Connect& connect) {
  auto membership = membership_of(world);
  const auto deadline = Deadline::after(options.timeout);
  if (world.size() == 1) {
    SingleRankExchange addresses;
    auto planes = connect(membership, addresses, deadline, [] {});
    return std::make_shared<Group>(std::move(membership), std::move(planes), options, connect);
  }
  const Watch watch = [&] {
    for (const auto& status : world.store().members(deadline)) {
      if (status.member.kind != MemberKind::rank || status.state == MemberState::connected)
        continue;
      throw PeerError(status.member.number,
                      fmt::format("{} has ended while group {} is created; see its own output for "
                                  "the reason",
                                  to_string(status.member), options.name));
    }
  };
  StoreAddressExchange addresses(world, fmt::format("fabric/{}", membership.registry->next_group()),
                                 deadline);
  try {
    auto planes = connect(membership, addresses, deadline, watch);
    return std::make_shared<Group>(std::move(membership), std::move(planes), options, connect);
  } catch (const SystemError&) {
    watch_briefly(watch);
    throw;
  }
}

}  // namespace lockstep
