// The three kinds of failure lockstep reports. Each message says what failed, with which values,
// and what to do next; docs/errors.md lists the rules. A broken invariant is none of these: see
// assert.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// What all three kinds have in common, for a caller that only reports.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// "usage", "peer" or "system": stable, for records that programs read.
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
};

/// The caller can fix it: a wrong argument, a file of the wrong shape, a contradiction in the
/// set-up.
class UsageError final : public Error {
 public:
  using Error::Error;
  [[nodiscard]] std::string_view kind() const noexcept override { return "usage"; }
};

/// Another rank is gone, too late, or differs from this one. The message names it.
class PeerError final : public Error {
 public:
  /// `rank` is the global rank of the peer that the message is about.
  PeerError(int rank, const std::string& message) : Error(message), rank_(rank) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "peer"; }
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The machine said no. The message ends with its own words for the error number.
class SystemError final : public Error {
 public:
  /// `what_failed` is a clause such as "cannot open /data/train.bin"; `error_number` is errno's
  /// value.
  SystemError(std::string_view what_failed, int error_number);

  [[nodiscard]] std::string_view kind() const noexcept override { return "system"; }
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

}  // namespace lockstep
