// What ranks tell each other while a checkpoint is written in the background: each what its file
// came to, rank 0 how the whole ended. It goes through the job's store, never through a group, so
// that no collective of the training meets it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Telling the others is not the save: it gets this time of its own, so that the cause of a save
/// that ended at its deadline still reaches them; and they wait so much longer to hear it.
constexpr std::chrono::seconds kTellingTime{5};

/// One save, and how long ranks wait for each other in it.
struct SaveWait {
  std::int64_t number = 0;
  std::int64_t step = 0;
  Deadline deadline;
  std::chrono::seconds timeout;  // that the deadline comes from, for messages
};

class SaveReports {
 public:
  /// `nonce` is the same on all ranks and unlike that of any other run in this store.
  SaveReports(World world, std::string nonce);

  /// Rank r of save `number` has written `file`; or has failed, and why. Throws SystemError when
  /// the store does not answer in kTellingTime, as conclude() does.
  void report(std::int64_t number, const FileRecord& file);
  void report_failure(std::int64_t number, const std::string& why);

  /// For rank 0: the files of all other ranks. Returns when all have reported.
  /// Throws PeerError that names a rank that has failed or is lost, or that has not reported by the
  /// deadline; and when `stop` is requested.
  [[nodiscard]] std::vector<FileRecord> collect(const SaveWait& save, const std::stop_token& stop);

  /// Rank 0 says how save `number` ended: empty for well.
  void conclude(std::int64_t number, const std::string& failure);
  /// For the others: returns when rank 0 has said so; its words. Waits until the deadline and
  /// kTellingTime more.
  [[nodiscard]] std::string conclusion(const SaveWait& save, const std::stop_token& stop);
  /// The words of rank 0 if it has said already that the save failed. Throws nothing: a store that
  /// does not answer has none.
  [[nodiscard]] std::optional<std::string> try_failure(std::int64_t number) noexcept;

 private:
  [[nodiscard]] std::string key(std::int64_t number, std::string_view what) const;
  // Nothing at the deadline.
  [[nodiscard]] std::optional<std::string> wait_for(const std::string& key, int rank,
                                                    Deadline deadline,
                                                    const std::stop_token& stop) const;

  World world_;
  std::string nonce_;
};

}  // namespace lockstep
