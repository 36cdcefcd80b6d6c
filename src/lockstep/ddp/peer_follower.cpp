#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/peer_calls.h"
#include "lockstep/ddp/peer_follower_internal.h"
#include "lockstep/ddp/reducer.h"

namespace lockstep {
namespace {

// A Ddp may be destroyed on another thread, so the list does not own the groups.
std::vector<std::weak_ptr<FollowedGroups>>& groups_of_this_thread() {
  thread_local std::vector<std::weak_ptr<FollowedGroups>> all;
  return all;
}

// The next call of this rank in `group`, if a rank has entered it in this micro-batch. The call is
// read before the end of the micro-batch: what a rank entered earlier is seen earlier.
std::optional<PeerCall> next_call(const PeerCalls& calls, const ProcessGroup& group,
                                  const MicroBatchEnds& ends) {
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    auto call = calls.next_of(rank);
    if (call && !ends.has_ended(rank)) return call;
  }
  return std::nullopt;
}

bool answer_batch_norm(const FollowedGroups& groups, const MicroBatchEnds& ends) {
  if (!groups.synced) return false;
  auto& layers = *groups.synced;
  const auto call = next_call(PeerCalls(layers.group()), layers.group(), ends);
  if (!call) return false;
  // The buckets that the other rank has begun before this call begin before it here too: a GPU
  // may execute what two groups enqueue in the order in which it was enqueued.
  PeerCalls(groups.gradients).advance();
  if (layers.answer(call->name())) return true;
  throw UsageError(fmt::format(
      "other ranks run a BatchNorm layer that this rank does not know, in {}: every rank makes its "
      "model in the same way",
      call->text()));
}

enum class Answered { nothing, call, gradients };

Answered answer_call(const FollowedGroups& groups, const MicroBatchEnds& ends) {
  const PeerCalls calls(groups.gradients);
  const auto call = next_call(calls, groups.gradients, ends);
  if (!call) return Answered::nothing;
  if (call->name().starts_with(kGradientsName)) return Answered::gradients;
  calls.answer(*call, groups.device).wait();
  return Answered::call;
}

bool have_same_ranks(const ProcessGroup& a, const ProcessGroup& b) {
  if (a.size() != b.size()) return false;
  for (int rank = 0; rank < a.size(); ++rank) {
    if (a.global_rank(rank) != b.global_rank(rank)) return false;
  }
  return true;
}

// `own`, and those of the other Ddps of this thread with the same ranks.
std::vector<std::shared_ptr<FollowedGroups>> groups_to_follow(
    const std::shared_ptr<FollowedGroups>& own) {
  std::vector<std::shared_ptr<FollowedGroups>> found{own};
  auto& all = groups_of_this_thread();
  std::erase_if(all, [](const auto& each) { return each.expired(); });
  for (const auto& each : all) {
    auto groups = each.lock();
    if (groups && groups != own && have_same_ranks(groups->gradients, own->gradients)) {
      found.push_back(std::move(groups));
    }
  }
  return found;
}

}  // namespace

void pause_between_looks(int idle) {
  constexpr int kYields = 100;
  constexpr std::chrono::microseconds kSleep{100};
  if (idle < kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

void MicroBatchEnds::end() { last_ = group_.barrier({.name = "end of micro-batch"}); }

bool MicroBatchEnds::has_ended(int rank) const {
  const PeerCalls calls(group_);
  return calls.num_entered(rank) >= calls.num_entered(group_.rank());
}

void follow_on_this_thread(const std::shared_ptr<FollowedGroups>& groups) {
  groups_of_this_thread().push_back(groups);
}

void follow_peers(const std::shared_ptr<FollowedGroups>& own, MicroBatchEnds& ends,
                  const std::function<void()>& on_gradients) {
  const auto all = groups_to_follow(own);
  const auto timeout = PeerCalls(own->gradients).timeout();
  auto deadline = Deadline::after(timeout);
  int idle = 0;
  while (!ends.all_ended()) {
    bool made = false;
    for (const auto& groups : all) {
      PeerCalls(groups->gradients).advance();  // this rank's buckets, if they have been started
      if (answer_batch_norm(*groups, ends)) made = true;
      switch (answer_call(*groups, ends)) {
        case Answered::call:
          made = true;
          break;
        case Answered::gradients:
          if (groups == own) on_gradients();
          break;
        case Answered::nothing:
          break;
      }
    }
    if (made) {
      idle = 0;
      deadline = Deadline::after(timeout);
      continue;
    }
    if (deadline.expired()) ends.wait(deadline);  // throws with the rank that is late
    pause_between_looks(idle++);
  }
}

}  // namespace lockstep
