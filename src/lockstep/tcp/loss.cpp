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

}  // namespace lockstep
