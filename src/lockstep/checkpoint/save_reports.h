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

class SaveReports {
 public:
  /// `nonce` is the same on all ranks and unlike that of any other run in this store.
  SaveReports(World world, std::string nonce);

  /// Rank r of save `number` has written `file`; or has failed, and why.
  void report(std::int64_t number, const FileRecord& file, Deadline deadline);
  void report_failure(std::int64_t number, const std::string& why, Deadline deadline);

  /// For rank 0: the files of all other ranks. Returns when all have reported.
  /// Throws PeerError that names a rank that has failed, is lost or is late; and when `stop` is
  /// requested.
  [[nodiscard]] std::vector<FileRecord> collect(std::int64_t number, Deadline deadline,
                                                const std::stop_token& stop);

  /// Rank 0 says how save `number` ended: empty for well.
  void conclude(std::int64_t number, const std::string& failure, Deadline deadline);
  /// For the others: returns when rank 0 has said so; its words.
  [[nodiscard]] std::string conclusion(std::int64_t number, Deadline deadline,
                                       const std::stop_token& stop);

 private:
  [[nodiscard]] std::string key(std::int64_t number, std::string_view what) const;
  [[nodiscard]] std::string wait_for(const std::string& key, int rank, Deadline deadline,
                                     const std::stop_token& stop) const;

  World world_;
  std::string nonce_;
};

}  // namespace lockstep
