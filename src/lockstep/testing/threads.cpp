#include "lockstep/testing/threads.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/testing/board_internal.h"
#include "lockstep/testing/run_body_internal.h"
#include "lockstep/testing/thread_state_internal.h"
#include "lockstep/testing/watchdog.h"

namespace lockstep::testing {
namespace {

using Failures = std::vector<std::optional<std::string>>;  // one per rank, written before the rank
                                                           // leaves the board

void play(Board& board, int rank, const std::function<void(Rank&)>& body,
          std::optional<std::string>& failure) {
  ::pthread_setname_np(::pthread_self(), fmt::format("rank {}", rank).c_str());
  failure = failure_of_body(board, rank, body);
  board.leave(rank, failure ? RankState::failed : RankState::finished);
}

std::string describe_hang(const Board& board, const Failures& failures) {
  std::vector<int> stuck;
  std::vector<pid_t> threads;
  std::vector<std::string> kernel_states;
  std::string text;
  for (int rank = 0; rank < board.size(); ++rank) {
    const auto& failure = failures[static_cast<std::size_t>(rank)];
    const RankState state = board.state(rank);
    text += fmt::format("rank {}: {}{}\n", rank, describe_rank(board, rank),
                        state == RankState::failed ? fmt::format("; {}", *failure) : "");
    if (state != RankState::running) continue;
    stuck.push_back(rank);
    threads.push_back(board.thread(rank));
    // Before the stacks are sampled: the signal that does so changes what the thread is waiting in.
    kernel_states.push_back(kernel_state(::getpid(), threads.back()));
  }
  const auto stacks = sample_stacks(threads, Deadline::after(std::chrono::seconds(1)));
  for (std::size_t i = 0; i < stuck.size(); ++i) {
    text += fmt::format("rank {}, thread {}: {}\n{}", stuck[i], threads[i], kernel_states[i],
                        indented(stacks[i], "    "));
  }
  return fmt::format("{} of {} ranks have not finished.\n{}", stuck.size(), board.size(), text);
}

void throw_if_any_failed(const Failures& failures) {
  std::string lines;
  std::optional<int> first;
  int count = 0;
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank]) continue;
    if (!first) first = static_cast<int>(rank);
    ++count;
    lines += fmt::format("\n  rank {}: {}", rank, *failures[rank]);
  }
  if (!first) return;
  throw PeerError(*first, fmt::format("{} of {} ranks failed:{}", count, failures.size(), lines));
}

}  // namespace

void run_ranks_as_threads(int size, const std::function<void(Rank&)>& body,
                          const ThreadsOptions& options) {
  Board board(size, Deadline::after(options.limit));
  Failures failures(static_cast<std::size_t>(size));
  {
    const Watchdog dog(options.limit, [&] { return describe_hang(board, failures); });
    std::vector<std::jthread>
        threads;  // destroyed before the watchdog, which also watches their end
    threads.reserve(failures.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back(
          [&, rank] { play(board, rank, body, failures[static_cast<std::size_t>(rank)]); });
    }
  }
  throw_if_any_failed(failures);
}

}  // namespace lockstep::testing
