#include "lockstep/base/deadline.h"

#include <algorithm>
#include <limits>

namespace lockstep {

Deadline Deadline::after(Clock::duration span) noexcept {
  const auto now = Clock::now();
  const auto longest = Clock::time_point::max() - now;
  return Deadline(now + std::min(span, longest));
}

Deadline::Clock::duration Deadline::remaining() const noexcept {
  return std::max(at_ - Clock::now(), Clock::duration::zero());
}

int Deadline::poll_milliseconds() const noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
  constexpr auto longest = std::numeric_limits<int>::max();
  return left > longest ? longest : static_cast<int>(left);
}

}  // namespace lockstep
