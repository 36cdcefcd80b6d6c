#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/quote.h"
#include "lockstep/formats/name_list_internal.h"

namespace lockstep {

std::string name_list(std::span<const std::string> names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return "none";
  std::string list;
  for (const auto& name : names.first(std::min(most, names.size()))) {
    list += (list.empty() ? "" : ", ") + in_quotes(name);
  }
  if (names.size() > most) list += fmt::format(" and {} more", names.size() - most);
  return list;
}

}  // namespace lockstep
