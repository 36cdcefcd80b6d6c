#include "lockstep/launch/line_folder.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lockstep {

void LineFolder::feed(OutputLine line, Time now) {
  const std::size_t hash = std::hash<std::string>{}(line.text);
  auto& next = next_[line.rank];
  for (auto number = std::max(next, first_); number < first_ + groups_.size(); ++number) {
    Group& group = groups_[number - first_];
    if (group.hash != hash || group.line.stream != line.stream || group.line.text != line.text) {
      continue;
    }
    group.line.ranks.push_back(line.rank);
    next = number + 1;
    return;
  }
  next = first_ + groups_.size() + 1;
  groups_.push_back({{{line.rank}, line.stream, std::move(line.text)}, hash, now});
}

std::vector<FoldedLine> LineFolder::release_ready(Time now) {
  std::vector<FoldedLine> ready;
  while (!groups_.empty() && is_ready(groups_.front(), now)) ready.push_back(release_first());
  return ready;
}

std::vector<FoldedLine> LineFolder::release_all() {
  std::vector<FoldedLine> all;
  while (!groups_.empty()) all.push_back(release_first());
  return all;
}

std::optional<LineFolder::Time> LineFolder::next_ready() const {
  if (groups_.empty()) return std::nullopt;
  return groups_.front().begun + window_;
}

bool LineFolder::is_ready(const Group& group, Time now) const {
  return static_cast<int>(group.line.ranks.size()) >= num_ranks_ || now >= group.begun + window_ ||
         groups_.size() > kMostGroups;
}

FoldedLine LineFolder::release_first() {
  auto line = std::move(groups_.front().line);
  groups_.pop_front();
  ++first_;
  return line;
}

}  // namespace lockstep
