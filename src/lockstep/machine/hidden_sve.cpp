#include "lockstep/machine/hidden_sve.h"

#include <fstream>
#include <sstream>

#include "lockstep/base/environment.h"

namespace lockstep {
namespace {

// The value after `name` and a colon in the first line that contains it.
std::string_view value_of(std::string_view cpuinfo, std::string_view name) {
  const auto begin = cpuinfo.find(name);
  if (begin == std::string_view::npos) return {};
  const auto line = cpuinfo.substr(begin, cpuinfo.find('\n', begin) - begin);
  return line.substr(line.find(':') + 1);
}

}  // namespace

bool hides_sve(std::string_view cpuinfo) {
  const auto part = value_of(cpuinfo, "CPU part");
  bool has_sve = false;
  for (const auto* known : {"0xd40", "0xd49", "0xd4f"}) {
    if (part.find(known) != std::string_view::npos) has_sve = true;
  }
  const std::string features = std::string(value_of(cpuinfo, "Features")) + " ";
  return has_sve && features.find(" sve ") == std::string::npos;
}

bool hides_sve() {
  std::ostringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  return hides_sve(text.str());
}

std::pair<std::string, std::string> plain_processor_variable() {
  return {"NVPL_BLAS_DEBUG_CPU_TYPE", "1"};
}

void set_plain_processor(Environment& environment) {
  const auto& [variable, value] = plain_processor_variable();
  if (hides_sve() && !environment.find(variable)) environment.set(variable, value);
}

}  // namespace lockstep
