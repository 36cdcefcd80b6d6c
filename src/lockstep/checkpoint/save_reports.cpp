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

// A connection to the store serves one thread at a time. The writer waits in slices with gaps, so
// that the training thread can use the store between them. Otherwise two ranks could wait for each
// other's writers.
constexpr std::chrono::milliseconds kSlice{200};
constexpr std::chrono::milliseconds kGap{2};

void leave_a_gap(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nobody;
  std::unique_lock lock(mutex);
  nobody.wait_for(lock, stop, kGap, [] { return false; });
}

nlohmann::json to_json(const FilePart& part) {
  auto words = nlohmann::json::array();
  for (const auto& [position, value, num_bytes] : part.partial_words) {
    words.push_back(nlohmann::json::array({position, value, num_bytes}));
  }
  return nlohmann::json::array({part.name, part.bytes, part.digest, part.ends, std::move(words)});
}

FilePart part_from_json(const nlohmann::json& json) {
  FilePart part{json.at(0).get<std::string>(), json.at(1).get<std::uint64_t>(),
                json.at(2).get<std::uint64_t>(), json.at(3).get<std::uint64_t>()};
  for (const auto& word : json.at(4)) {
    part.partial_words.push_back(
        {word.at(0).get<std::uint64_t>(), word.at(1).get<std::uint64_t>(), word.at(2).get<int>()});
  }
  return part;
}

}  // namespace

SaveReports::SaveReports(World world, std::string nonce)
    : world_(std::move(world)), nonce_(std::move(nonce)) {}

std::string SaveReports::key(std::int64_t number, std::string_view what) const {
  return fmt::format("checkpoint/{}/{}/{}", nonce_, number, what);
}

void SaveReports::report(std::int64_t number, std::span<const FilePart> parts) {
  auto json = nlohmann::json::array();
  for (const auto& part : parts) json.push_back(to_json(part));
  world_.store().set(key(number, fmt::format("rank-{}", world_.rank())), json.dump(),
                     Deadline::after(kTellingTime));
}

void SaveReports::report_failure(std::int64_t number, const std::string& why) {
  world_.store().set(key(number, fmt::format("rank-{}", world_.rank())),
                     nlohmann::json{{"failure", why}}.dump(
                         -1, ' ', false, nlohmann::json::error_handler_t::replace),
                     Deadline::after(kTellingTime));
}

std::vector<FilePart> SaveReports::collect(const SaveWait& save, const std::stop_token& stop) {
  std::vector<FilePart> parts;
  for (int rank = 1; rank < world_.size(); ++rank) {
    const auto name = key(save.number, fmt::format("rank-{}", rank));
    const auto text = wait_for(name, rank, save.deadline, stop);
    if (!text) {
      throw PeerError(rank, fmt::format("rank {} has not written its part of the checkpoint of "
                                        "step {} within the timeout of {} s: its disk is slow or "
                                        "stuck; if it is only slow, raise RunOptions::timeout",
                                        rank, save.step, save.timeout.count()));
    }
    const auto json = nlohmann::json::parse(*text);
    (void)world_.store().remove(name, Deadline::after(kTellingTime));
    if (json.is_object()) {
      throw PeerError(rank, fmt::format("rank {} could not write its part of the checkpoint: {}",
                                        rank, json["failure"].get<std::string>()));
    }
    for (const auto& part : json) parts.push_back(part_from_json(part));
  }
  return parts;
}

void SaveReports::conclude(std::int64_t number, const std::string& failure) {
  if (world_.size() == 1) return;
  const auto deadline = Deadline::after(kTellingTime);
  world_.store().set(key(number, "end"), failure, deadline);
  // Every rank in this save has read the outcome of the previous one.
  if (failure.empty()) (void)world_.store().remove(key(number - 1, "end"), deadline);
}

std::string SaveReports::conclusion(const SaveWait& save, const std::stop_token& stop) {
  const auto words =
      wait_for(key(save.number, "end"), 0, Deadline(save.deadline.at() + kTellingTime), stop);
  if (!words) {
    throw PeerError(0, fmt::format("rank 0 has not completed the checkpoint of step {} within the "
                                   "timeout of {} s: its disk is slow or stuck; if it is only "
                                   "slow, raise RunOptions::timeout",
                                   save.step, save.timeout.count()));
  }
  // Rank 0 has given up before it read this rank's report, so this rank removes it.
  if (!words->empty()) {
    (void)world_.store().remove(key(save.number, fmt::format("rank-{}", world_.rank())),
                                Deadline::after(kTellingTime));
  }
  return *words;
}

std::optional<std::string> SaveReports::try_failure(std::int64_t number) noexcept {
  try {
    const auto value = world_.store().try_get(key(number, "end"), Deadline::after(kTellingTime));
    if (!value || value->empty()) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(value->data()), value->size());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<std::string> SaveReports::wait_for(const std::string& key, int rank,
                                                 Deadline deadline,
                                                 const std::stop_token& stop) const {
  auto& store = world_.store();
  // Reads at least once: a report in time counts, even if it is read late.
  while (true) {
    if (stop.stop_requested()) {
      throw PeerError(rank, fmt::format("the run ended before rank {} had reported on the "
                                        "checkpoint being written",
                                        rank));
    }
    try {
      return store.get_text(key, Deadline::after(kSlice));
    } catch (const SystemError& error) {
      if (error.error_number() != ETIMEDOUT) throw;
    }
    if (deadline.expired()) return std::nullopt;
    for (const auto& [member, state] : store.members(Deadline::after(kTellingTime))) {
      if (member == Member{MemberKind::rank, rank} && state != MemberState::connected) {
        throw PeerError(rank, fmt::format("rank {} is lost and has not reported on the checkpoint "
                                          "being written",
                                          rank));
      }
    }
    leave_a_gap(stop);
  }
}

}  // namespace lockstep
