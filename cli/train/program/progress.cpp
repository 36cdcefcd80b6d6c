#include "cli/train/program/progress.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep::cli {

std::string progress_line(const Progress& p, int columns) {
  const auto number =
      p.steps ? fmt::format("{:>{}}/{}", p.step, std::to_string(*p.steps).size(), *p.steps)
              : std::to_string(p.step);
  const std::array parts{
      fmt::format("step {}", number),
      fmt::format("loss {:.4f}", p.loss),
      fmt::format("{} {}/s", short_number(p.units_per_second), p.unit),
      p.left ? clock_text(*p.left) + " left" : std::string(),
      fmt::format("lr {:.2e}", p.lr),
      fmt::format("data wait {:.1f} %", 100 * p.data_wait),
      fmt::format("exposed comm {:.1f} %", 100 * p.exposed),
  };
  std::string line;
  for (const auto& part : parts) {
    if (part.empty()) continue;
    const auto longer = line.empty() ? part : line + "  " + part;
    if (static_cast<int>(longer.size()) > columns) break;
    line = longer;
  }
  return line;
}

std::string short_number(double value) {
  constexpr std::array names{"", "k", "M", "G", "T"};
  std::size_t name = 0;
  while (std::abs(value) >= 999.5 && name + 1 < names.size()) {
    value /= 1000;
    ++name;
  }
  const int digits = name == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, names[name]);
}

std::string clock_text(std::chrono::seconds time) {
  const auto total = time.count();
  const auto hours = total / 3600;
  const auto minutes = total / 60 % 60;
  const auto seconds = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, seconds)
                   : fmt::format("{}:{:02}", minutes, seconds);
}

}  // namespace lockstep::cli
