#include "lockstep/launch/program_path.h"

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<std::string> program_candidates(const std::string& program,
                                            const Environment& environment) {
  if (program.empty()) throw UsageError("the name of the program to run is empty: name one");
  if (program.find('/') != std::string::npos) return {program};
  const auto path = environment.find("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  std::vector<std::string> result;
  std::string_view rest = path;
  for (;;) {
    const auto colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    result.push_back((folder.empty() ? "." : folder) + "/" + program);  // POSIX: empty means "."
    if (colon == std::string_view::npos) return result;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace lockstep
