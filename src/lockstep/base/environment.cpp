#include "lockstep/base/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {

Environment Environment::of_process() {
  Environment result{};
  for (char** line = ::environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text(*line);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.set(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> Environment::find(std::string_view name) const {
  auto value = find_even_empty(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

std::optional<std::string> Environment::find_even_empty(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> Environment::find_integer(std::string_view name) const {
  const auto text = find(name);
  if (!text) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc{} || stopped != end) {
    throw UsageError(
        fmt::format("the environment variable {} is \"{}\", expected an integer: set it to one, or "
                    "unset it",
                    name, *text));
  }
  return number;
}

bool Environment::flag(std::string_view name) const {
  const auto text = find(name).value_or("");
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text.empty() || text == "0" || text == "false" || text == "no" || text == "off") return false;
  throw UsageError(
      fmt::format("the environment variable {} is \"{}\", expected 1 or 0", name, text));
}

void Environment::set(std::string_view name, std::string_view value) {
  variables_.insert_or_assign(std::string(name), std::string(value));
}

void Environment::remove(std::string_view name) {
  if (const auto found = variables_.find(name); found != variables_.end()) variables_.erase(found);
}

std::vector<std::string> Environment::lines() const {
  std::vector<std::string> result;
  result.reserve(variables_.size());
  for (const auto& [name, value] : variables_) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

}  // namespace lockstep
