// The three kinds of errors that lockstep throws. Each message states what failed, with which
// values, on which rank, and what to do next; docs/errors.md lists the rules. A broken invariant
// is not an exception: see assert.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// The base class of the three kinds, for a caller that only reports the error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// "usage", "peer" or "system". Stable across versions, for records that programs read.
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
};

/// The caller can fix it: an invalid argument, a malformed file, a contradictory configuration.
class UsageError final : public Error {
 public:
  using Error::Error;
  [[nodiscard]] std::string_view kind() const noexcept override { return "usage"; }
};

/// Another rank is lost, timed out, or differs from this one. The message names it.
class PeerError final : public Error {
 public:
  /// `rank` is the global rank of the peer that the message is about.
  PeerError(int rank, const std::string& message) : Error(message), rank_(rank) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "peer"; }
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// A system call or a device failed. The message ends with the description of the system or device.
class SystemError final : public Error {
 public:
  /// `what_failed` is a clause such as "cannot open /data/train.bin"; `error_number` is the value
  /// of errno.
  SystemError(std::string_view what_failed, int error_number);
  /// For a device, such as a GPU; `message` ends with its description. error_number() is 0.
  explicit SystemError(const std::string& message) : Error(message), error_number_(0) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "system"; }
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

}  // namespace lockstep
