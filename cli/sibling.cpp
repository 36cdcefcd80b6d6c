#include "cli/sibling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/launch/exec_arguments.h"
#include "lockstep/machine/hidden_sve.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

std::string typed_command(const Environment& environment) {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  const auto path = ":" + environment.find("PATH").value_or("") + ":";
  if (path.find(":" + folder.string() + ":") != std::string::npos) return "lockstep";
  return fs::proximate(folder / "lockstep");
}

std::string sibling_path(const std::string& name) {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string path = folder / name;
  if (!fs::exists(path)) {
    throw UsageError(
        fmt::format("the program {} is not in {}, the folder of this command; build or install it "
                    "(cmake --build … --target {})",
                    name, folder.string(), name));
  }
  return path;
}

void become_sibling(const std::string& name, const std::vector<std::string>& arguments) {
  const auto path = sibling_path(name);
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto environment = Environment::of_process();
  set_plain_processor(environment);  // the launcher does it for ranks
  auto lines = environment.lines();
  ::execve(path.c_str(), exec_arguments(words).data(), exec_arguments(lines).data());
  throw SystemError(fmt::format("cannot start {}", path), errno);
}

}  // namespace lockstep::cli
