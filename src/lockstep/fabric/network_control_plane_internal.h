#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/fabric/network_group_internal.h"

namespace lockstep {

class NetworkControlPlane final : public ControlPlane {
 public:
  NetworkControlPlane(std::shared_ptr<NetworkGroup> group, std::function<std::string(int)> describe,
                      bool shares_cores)
      : ControlPlane(/*polls=*/true),
        group_(std::move(group)),
        describe_(std::move(describe)),
        shares_cores_(shares_cores) {}

  [[nodiscard]] const Counters& counters() const noexcept override { return group_->counters(); }
  [[nodiscard]] CallRecord& own_record(std::uint64_t number) noexcept override {
    return group_->own_record(number);
  }
  void enter(std::uint64_t number, std::uint64_t signature) noexcept override {
    group_->enter(number, signature);
  }
  void complete(std::uint64_t number) noexcept override { group_->complete(number); }
  void set_standing(Standing standing) noexcept override { group_->set_standing(standing); }
  void fail(const Cause& cause) noexcept override { group_->fail(cause); }

  [[nodiscard]] std::optional<int> find_other_signature(std::uint64_t number,
                                                        std::uint64_t signature) const override {
    for (int rank = 0; rank < group_->size(); ++rank) {
      if (group_->signature(rank, number) != signature ||
          group_->standing(rank) == Standing::failed) {
        return rank;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] const CallRecord& record(int rank, std::uint64_t number) const override {
    return group_->record(rank, number);
  }
  [[nodiscard]] Standing standing(int rank) const noexcept override {
    return group_->standing(rank);
  }
  [[nodiscard]] Cause cause(int rank) const override { return group_->cause(rank); }
  [[nodiscard]] bool is_gone(int rank) const override {
    return rank != group_->rank() && group_->is_lost(rank);
  }
  [[nodiscard]] bool relays() const noexcept override { return group_->relays(); }
  [[nodiscard]] std::string_view gone_in_words(int rank) const override {
    return group_->loss_of(rank).empty() ? "has ended" : "is lost";
  }
  [[nodiscard]] std::string describe(int rank) const override {
    if (rank == group_->rank()) return describe_(rank);
    const auto loss = group_->loss_of(rank);
    return loss.empty() ? describe_(rank) : describe_(rank) + "; " + loss;
  }
  [[nodiscard]] bool shares_cores() const override { return shares_cores_; }
  void sleep(const Awaited& awaited, int rank, Deadline until) override {
    group_->publish_before_sleep();
    while (awaited.lags(rank) && !is_gone(rank) && group_->failures().load() == 0 &&
           !until.expired()) {
      group_->network().wait(until);
    }
  }
  void set_waits_in(std::uint64_t number) noexcept override { group_->set_waits_in(number); }
  [[nodiscard]] std::uint64_t waits_in(int rank) const noexcept override {
    return group_->waits_in(rank);
  }

 private:
  void receive_pending() override { group_->network().poll(); }

  std::shared_ptr<NetworkGroup> group_;
  std::function<std::string(int)> describe_;
  bool shares_cores_;
};

}  // namespace lockstep
