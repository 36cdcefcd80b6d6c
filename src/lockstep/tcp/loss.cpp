#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "lockstep/tcp/loss_internal.h"

namespace lockstep {

std::string silence_in_words(bool acknowledges) {
  return acknowledges ? "its machine answers, its process does not" : "its machine does not answer";
}

std::string error_in_words(int error_number, bool acknowledges) {
  switch (error_number) {
    case ETIMEDOUT:
      return silence_in_words(acknowledges);
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
      return fmt::format("{}: {}", silence_in_words(false), std::strerror(error_number));
    default:
      return fmt::format("the connection to it was lost: {}", std::strerror(error_number));
  }
}

// The peer may have found the same connection reset, and have closed the others some time later.
std::optional<std::string> ends_in_words(int num_ended, int num_connections,
                                         std::chrono::nanoseconds open_for, bool has_answered) {
  const bool is_complete = num_ended == num_connections;
  if (is_complete && (open_for < kEndingTime || !has_answered)) return "";
  if (!is_complete && (open_for < 2 * kEndingTime || !has_answered)) return std::nullopt;
  return "a connection to it was reset, but its process has not ended: its other connections work";
}

}  // namespace lockstep
