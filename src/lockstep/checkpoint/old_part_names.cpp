#include "lockstep/checkpoint/old_part_names.h"

#include <array>
#include <vector>

namespace lockstep {
namespace {

struct OldName {
  std::string_view old;  // the type's name in snake case
  std::string_view now;
};

// Types of lockstep whose usual name has changed. Loader, Sampler, Schedule, Seeds and LibTorch's
// types still have the old one.
constexpr std::array kOldNames{OldName{"adam", "optimizer"}, OldName{"adam_w", "optimizer"},
                               OldName{"sgd", "optimizer"}, OldName{"grad_scaler", "scaler"}};

}  // namespace

std::map<std::string, std::string> old_part_names(const std::set<std::string>& saved,
                                                  const std::set<std::string>& tracked) {
  std::map<std::string, std::string> names;
  for (const auto& name : tracked) {
    if (saved.contains(name)) continue;
    std::vector<std::string> candidates;
    for (const auto& [old, now] : kOldNames) {
      std::string candidate(old);
      if (now != name || !saved.contains(candidate) || tracked.contains(candidate)) continue;
      candidates.push_back(std::move(candidate));
    }
    if (candidates.size() == 1) names.emplace(name, candidates.front());
  }
  return names;
}

}  // namespace lockstep
