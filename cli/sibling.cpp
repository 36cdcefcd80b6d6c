#include "cli/sibling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::cli {

std::string sibling_path(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string path = folder / name;
  if (!std::filesystem::exists(path)) {
    throw UsageError(
        fmt::format("the program {} is not in {}, where this command is; build or install it too "
                    "(cmake --build … --target {})",
                    name, folder.string(), name));
  }
  return path;
}

void become_sibling(const std::string& name, const std::vector<std::string>& arguments) {
  const auto path = sibling_path(name);
  std::vector<char*> words{const_cast<char*>(path.c_str())};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  ::execv(path.c_str(), words.data());
  throw SystemError(fmt::format("cannot start {}", path), errno);
}

}  // namespace lockstep::cli
