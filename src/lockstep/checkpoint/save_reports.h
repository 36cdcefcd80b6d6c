// Messages between ranks while a checkpoint is written in the background: each rank reports its
// files, rank 0 reports the outcome. They use the job's store and no group, so that they never mix
// with training's collectives.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/checkpoint/file_parts.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// The time for reporting an outcome, after the save's deadline: the cause of a save that ended at
/// its deadline still reaches the other ranks, which wait this much longer.
constexpr std::chrono::seconds kTellingTime{5};

/// One save, and how long ranks wait for each other.
struct SaveWait {
  std::int64_t number = 0;
  std::int64_t step = 0;
  Deadline deadline;
  std::chrono::seconds timeout;  // of the deadline, for messages
};

class SaveReports {
 public:
  /// `nonce` is equal on all ranks and different from that of any other run in this store.
  SaveReports(World world, std::string nonce);

  /// Reports that this rank has written and synced `parts` of save `number`, or has failed. Both
  /// throw SystemError if the store does not answer within kTellingTime, as conclude() does.
  void report(std::int64_t number, std::span<const FilePart> parts);
  void report_failure(std::int64_t number, const std::string& why);

  /// Called by rank 0. Returns the parts of all other ranks, by rank, when all have reported.
  /// Throws PeerError naming a rank that has failed, is lost, or has not reported by the deadline,
  /// and if `stop` is requested.
  [[nodiscard]] std::vector<FilePart> collect(const SaveWait& save, const std::stop_token& stop);

  /// Called by rank 0: reports the outcome of save `number`. An empty `failure` means success.
  void conclude(std::int64_t number, const std::string& failure);
  /// Called by the other ranks. Returns the `failure` that rank 0 has passed to conclude(). Waits
  /// until the deadline plus kTellingTime, then throws PeerError.
  [[nodiscard]] std::string conclusion(const SaveWait& save, const std::stop_token& stop);
  /// The failure that rank 0 has already reported, if any. Does not throw: empty if the store does
  /// not answer.
  [[nodiscard]] std::optional<std::string> try_failure(std::int64_t number) noexcept;

 private:
  [[nodiscard]] std::string key(std::int64_t number, std::string_view what) const;
  // Empty at the deadline.
  [[nodiscard]] std::optional<std::string> wait_for(const std::string& key, int rank,
                                                    Deadline deadline,
                                                    const std::stop_token& stop) const;

  World world_;
  std::string nonce_;
};

}  // namespace lockstep
