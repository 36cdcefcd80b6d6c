#include "lockstep/machine/gpus.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace lockstep {

int num_gpus(const Environment& environment, const std::string& root) {
  std::error_code error;  // without a driver there is no folder
  int cards = 0;
  for (std::filesystem::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    ++cards;
  }
  const auto visible = environment.find_even_empty("CUDA_VISIBLE_DEVICES");
  if (!visible) return cards;
  // CUDA stops at the first invalid entry; -1 is the usual one.
  if (visible->empty() || visible->starts_with('-') || *visible == "NoDevFiles") return 0;
  return std::min(cards, static_cast<int>(std::count(visible->begin(), visible->end(), ',')) + 1);
}

}  // namespace lockstep
