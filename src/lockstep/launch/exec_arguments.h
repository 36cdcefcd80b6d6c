// Argument lists for the functions that execute a program.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Pointers to the texts, followed by a null pointer, as execve and posix_spawn expect. They are
/// valid while `texts` does not change.
[[nodiscard]] inline std::vector<char*> exec_arguments(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace lockstep
