#include "lockstep/checkpoint/save_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

// A store's connection serves one thread at a time. A wait of the writer is cut into slices with a
// gap between them, so that the training thread, if it needs the store, has its turn: else two
// ranks could wait for each other's writers.
constexpr std::chrono::milliseconds kSlice{200};
constexpr std::chrono::milliseconds kGap{2};

void leave_a_gap(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nobody;
  std::unique_lock lock(mutex);
  nobody.wait_for(lock, stop, kGap, [] { return false; });
}

}  // namespace

SaveReports::SaveReports(World world, std::string nonce)
    : world_(std::move(world)), nonce_(std::move(nonce)) {}

std::string SaveReports::key(std::int64_t number, std::string_view what) const {
  return fmt::format("checkpoint/{}/{}/{}", nonce_, number, what);
}

void SaveReports::report(std::int64_t number, const FileRecord& file, Deadline deadline) {
  const nlohmann::json json{{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}};
  world_.store().set(key(number, fmt::format("rank-{}", world_.rank())), json.dump(), deadline);
}

void SaveReports::report_failure(std::int64_t number, const std::string& why, Deadline deadline) {
  world_.store().set(key(number, fmt::format("rank-{}", world_.rank())),
                     nlohmann::json{{"failure", why}}.dump(
                         -1, ' ', false, nlohmann::json::error_handler_t::replace),
                     deadline);
}

std::vector<FileRecord> SaveReports::collect(std::int64_t number, Deadline deadline,
                                             const std::stop_token& stop) {
  std::vector<FileRecord> files;
  for (int rank = 1; rank < world_.size(); ++rank) {
    const auto name = key(number, fmt::format("rank-{}", rank));
    const auto json = nlohmann::json::parse(wait_for(name, rank, deadline, stop));
    (void)world_.store().remove(name, deadline);
    if (json.contains("failure")) {
      throw PeerError(rank, fmt::format("rank {} could not write its part of the checkpoint: {}",
                                        rank, json["failure"].get<std::string>()));
    }
    files.push_back({json.at("name").get<std::string>(), json.at("bytes").get<std::uint64_t>(),
                     json.at("digest").get<std::uint64_t>()});
  }
  return files;
}

void SaveReports::conclude(std::int64_t number, const std::string& failure, Deadline deadline) {
  if (world_.size() == 1) return;
  world_.store().set(key(number, "end"), failure, deadline);
  // Everyone who takes part in this save has read how the one before ended.
  if (failure.empty()) (void)world_.store().remove(key(number - 1, "end"), deadline);
}

std::string SaveReports::conclusion(std::int64_t number, Deadline deadline,
                                    const std::stop_token& stop) {
  return wait_for(key(number, "end"), 0, deadline, stop);
}

std::string SaveReports::wait_for(const std::string& key, int rank, Deadline deadline,
                                  const std::stop_token& stop) const {
  auto& store = world_.store();
  while (!deadline.expired()) {
    if (stop.stop_requested()) {
      throw PeerError(rank, fmt::format("the run ended before rank {} had reported on the "
                                        "checkpoint being written",
                                        rank));
    }
    try {
      return store.get_text(key, std::min(deadline, Deadline::after(kSlice)));
    } catch (const SystemError& error) {
      if (error.error_number() != ETIMEDOUT) throw;
    }
    for (const auto& [member, state] : store.members(deadline)) {
      if (member == Member{MemberKind::rank, rank} && state != MemberState::connected) {
        throw PeerError(rank, fmt::format("rank {} is gone and has not reported on the checkpoint "
                                          "being written",
                                          rank));
      }
    }
    leave_a_gap(stop);
  }
  throw PeerError(rank, fmt::format("rank {} has not reported on the checkpoint being written in "
                                    "time; is its disk stuck?",
                                    rank));
}

}  // namespace lockstep
