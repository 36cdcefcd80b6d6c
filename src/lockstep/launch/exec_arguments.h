// Words as the functions that execute a program take them.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Pointers to the texts and a null pointer after them, as execve and posix_spawn take arguments
/// and variables. They are valid while `texts` is unchanged.
[[nodiscard]] inline std::vector<char*> exec_arguments(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace lockstep
