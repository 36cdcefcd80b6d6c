#include "lockstep/machine/processor_name.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// Of the first line "name : value"; empty if there is none.
std::string_view value_in(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || trimmed(line.substr(0, colon)) != name) continue;
    return trimmed(line.substr(colon + 1));
  }
  return {};
}

constexpr std::string_view kArm =
    "0x41";  // other implementers give the same numbers to other parts
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kArmParts{
    {{"0xd0c", "Neoverse-N1"},
     {"0xd40", "Neoverse-V1"},
     {"0xd49", "Neoverse-N2"},
     {"0xd4f", "Neoverse-V2"},
     {"0xd84", "Neoverse-V3"},
     {"0xd8e", "Neoverse-N3"}}};

}  // namespace

std::string processor_name_in(std::string_view cpuinfo) {
  for (const auto* key : {"model name", "Model", "Hardware"}) {
    if (const auto name = value_in(cpuinfo, key); !name.empty()) return std::string(name);
  }
  const auto part = value_in(cpuinfo, "CPU part");
  if (part.empty()) return {};
  for (const auto& [number, name] : kArmParts) {
    if (part == number && value_in(cpuinfo, "CPU implementer") == kArm) return std::string(name);
  }
  return "part " + std::string(part);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  return processor_name_in(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace lockstep
