#include "lockstep/trace/profile_request.h"

#include <fmt/format.h>

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// 0: not the number of a step.
std::int64_t step_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

ProfileRequest parse_profile_request(std::string_view source, std::string_view text) {
  const auto comma = text.find(',');
  const auto steps = text.substr(0, comma);
  const auto colon = steps.find(':');
  const auto first = step_in(steps.substr(0, colon));
  const auto last = colon == std::string_view::npos ? 0 : step_in(steps.substr(colon + 1));
  const bool is_known = comma == std::string_view::npos || text.substr(comma + 1) == "operators";
  if (first == 0 || last < first || !is_known) {
    throw UsageError(fmt::format(
        "{} is \"{}\", expected the first and the last step to profile, counted from 1, as 10:20; "
        "10:20,operators also records LibTorch's operators",
        source, text));
  }
  return {.window = {.first = first, .last = last}, .operators = comma != std::string_view::npos};
}

}  // namespace lockstep
