// The findings of comparison.h.
#include "lockstep/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kWindow = 5;     // rows of one mean
constexpr double kStandardErrors = 4;  // one false alarm in ten thousand windows

struct Differences {
  std::vector<double> step;
  std::vector<double> value;
};

Differences differences_of(const MetricColumns& first, const MetricColumns& second,
                           std::string_view column) {
  Differences result;
  const auto* a = first.find(column);
  const auto* b = second.find(column);
  if (!a || !b) return result;
  for (std::size_t i = 0, j = 0; i < a->size() && j < b->size();) {
    if (first.step[i] < second.step[j]) {
      ++i;
    } else if (first.step[i] > second.step[j]) {
      ++j;
    } else {
      const double value = (*b)[j] - (*a)[i];
      if (std::isfinite(value)) {
        result.step.push_back(first.step[i]);
        result.value.push_back(value);
      }
      ++i;
      ++j;
    }
  }
  return result;
}

// From second differences, which contain no linear trend: a noise of deviation s gives them s√6.
double noise_of(const std::vector<double>& values) {
  std::vector<double> seconds;
  for (std::size_t i = 2; i < values.size(); ++i) {
    seconds.push_back(std::abs(values[i] - 2 * values[i - 1] + values[i - 2]));
  }
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return 1.4826 * *middle / std::sqrt(6.0);
}

double mean_of(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto to = values.begin() + static_cast<std::ptrdiff_t>(end);
  return std::accumulate(from, to, 0.0) / static_cast<double>(end - begin);
}

double part_of(const RunAnalysis& analysis, StepPart part) {
  return analysis.split_ms[static_cast<std::size_t>(part)];
}

void fill(ScalingAnswer& answer, std::size_t side, const RunAnalysis& analysis) {
  answer.step_ms[side] = analysis.step_ms;
  answer.data_wait_ms[side] = part_of(analysis, StepPart::data_wait);
  answer.communication_ms[side] = part_of(analysis, StepPart::exposed);
  answer.gaps_ms[side] =
      part_of(analysis, StepPart::checkpoint) + part_of(analysis, StepPart::other);
  answer.compute_ms[side] = part_of(analysis, StepPart::forward) +
                            part_of(analysis, StepPart::backward) +
                            part_of(analysis, StepPart::optimizer);
}

std::string sentence(const ScalingAnswer& answer, int small, int large) {
  struct Part {
    std::string_view name;
    double growth;
  };
  const auto growth = [](const double(&pair)[2]) { return pair[1] - pair[0]; };
  std::vector<Part> parts{{"data wait", growth(answer.data_wait_ms)},
                          {"communication", growth(answer.communication_ms)},
                          {"gaps", growth(answer.gaps_ms)},
                          {"compute", growth(answer.compute_ms)}};
  auto text =
      fmt::format("From {} to {} ranks, the time per step goes from {:.1f} to {:.1f} ms:", small,
                  large, answer.step_ms[0], answer.step_ms[1]);
  for (const auto& [name, ms] : parts) text += fmt::format(" {} {:+.1f} ms,", name, ms);
  text.back() = '.';
  const auto most = std::ranges::max_element(parts, {}, &Part::growth);
  // Less than 2 % of a step is the noise between two runs.
  text += most->growth > 0.02 * answer.step_ms[0]
              ? fmt::format(" The largest growth is that of {}.", most->name)
              : std::string(" Nothing grows notably.");
  return text + fmt::format(" Speed per rank: {:.0f} %.", 100 * answer.efficiency);
}

}  // namespace

std::vector<SettingDifference> setting_differences(std::span<const RunRecord> runs) {
  std::vector<SettingDifference> result;
  const auto add = [&](const std::string& name, const auto& value_of) {
    if (std::ranges::find(result, name, &SettingDifference::name) != result.end()) return;
    SettingDifference difference{.name = name};
    for (const auto& run : runs) difference.values.push_back(value_of(run));
    const auto& first = difference.values.front();
    const bool is_same =
        std::ranges::all_of(difference.values, [&](const auto& value) { return value == first; });
    if (!is_same) result.push_back(std::move(difference));
  };
  add("model", [](const RunRecord& run) { return run.model; });
  add("data", [](const RunRecord& run) { return run.data; });
  add("ranks", [](const RunRecord& run) {
    return run.world > 0 ? std::to_string(run.world) : std::string();
  });
  for (const auto& run : runs) {
    for (const auto& setting : run.settings) {
      // The folder differs by design, and the effective number of ranks is listed above.
      if (setting.name == "run" || setting.name == "ranks" || setting.name == "data") continue;
      add(setting.name, [&](const RunRecord& one) { return one.setting(setting.name); });
    }
  }
  return result;
}

CurveParting find_parting(const MetricColumns& first, const MetricColumns& second,
                          std::string_view column) {
  const auto differences = differences_of(first, second, column);
  const auto& values = differences.value;
  CurveParting parting{.num_common = static_cast<std::int64_t>(values.size())};
  if (values.empty()) return parting;
  parting.identical = std::ranges::all_of(values, [](double value) { return value == 0; });
  parting.noise = noise_of(values);
  parting.last_difference =
      mean_of(values, values.size() - std::min(values.size(), kWindow), values.size());
  if (parting.identical) return parting;
  if (values.size() < 2 * kWindow) return parting;
  const double limit = kStandardErrors * parting.noise / std::sqrt(static_cast<double>(kWindow));
  for (std::size_t begin = 0; begin + 2 * kWindow <= values.size(); ++begin) {
    const double here = mean_of(values, begin, begin + kWindow);
    const double next = mean_of(values, begin + kWindow, begin + 2 * kWindow);
    if (std::abs(here) <= limit || std::abs(next) <= limit || (here > 0) != (next > 0)) continue;
    // The window may begin before they part: the first row of it that is out of the noise.
    std::size_t row = begin;
    while (row + 1 < begin + kWindow && std::abs(values[row]) <= limit) ++row;
    parting.first_step = static_cast<std::int64_t>(differences.step[row]);
    return parting;
  }
  return parting;
}

std::string in_words(const CurveParting& parting) {
  if (parting.num_common == 0) return "have no step in common";
  const auto rows = fmt::format("{} common row{}", grouped(parting.num_common),
                                parting.num_common == 1 ? "" : "s");
  if (parting.identical) return "are equal in all " + rows;
  if (parting.num_common < static_cast<std::int64_t>(2 * kWindow)) {
    return fmt::format("have {}, too few to tell a difference from noise", rows);
  }
  if (!parting.first_step) {
    return fmt::format("do not part in {}: differences stay within their noise of {}", rows,
                       figure_text(parting.noise, Unit::plain));
  }
  return fmt::format(
      "part at step {}: the noise is {}, the difference at the end {}",
      grouped(*parting.first_step), figure_text(parting.noise, Unit::plain),
      (parting.last_difference > 0 ? "+" : "") + figure_text(parting.last_difference, Unit::plain));
}

std::optional<ScalingAnswer> scaling_answer(std::span<const RunRecord> runs) {
  if (runs.size() < 2) return std::nullopt;
  const auto by_world = [](const RunRecord& a, const RunRecord& b) { return a.world < b.world; };
  const auto small = std::ranges::min_element(runs, by_world);
  const auto large = std::ranges::max_element(runs, by_world);
  if (small->world == large->world || small->world <= 0) return std::nullopt;
  const auto from = figures_of(*small);
  const auto to = figures_of(*large);
  if (from.analysis.step_ms <= 0 || to.analysis.step_ms <= 0) return std::nullopt;
  ScalingAnswer answer{.small = static_cast<std::size_t>(small - runs.begin()),
                       .large = static_cast<std::size_t>(large - runs.begin())};
  fill(answer, 0, from.analysis);
  fill(answer, 1, to.analysis);
  if (from.speed > 0) {
    answer.efficiency = (to.speed / large->world) / (from.speed / small->world);
  }
  answer.text = sentence(answer, small->world, large->world);
  return answer;
}

}  // namespace lockstep
