// Runs for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/report/comparison.h"
#include "lockstep/report/page_parts_internal.h"
#include "lockstep/report/text_plot.h"

namespace lockstep {
namespace {

PlotCurve curve_of(const MetricColumns& rows, char mark) {
  PlotCurve curve{.mark = mark};
  const auto* loss = rows.find("loss");
  if (!loss) return curve;
  for (std::size_t row = 0; row < loss->size(); ++row)
    curve.points.push_back({rows.step[row], (*loss)[row]});
  return curve;
}

std::string line(std::string_view name, const std::string& text) {
  return text.empty() ? std::string() : fmt::format("  {:<15} {}\n", name, text);
}

std::string failure_text(const RunRecord& run) {
  const auto* end = run.last_end();
  if (run.outcome != RunOutcome::failed || !end || !end->culprit) return {};
  auto text = fmt::format("\nRank {} on {} ended first, with {}.\n", end->culprit->rank,
                          end->culprit->host, end->culprit->how);
  if (!end->culprit->uncaught.empty()) text += "  " + end->culprit->uncaught + "\n";
  for (const auto& one : end->culprit->last_lines) text += "  | " + one + "\n";
  for (const auto& flight : run.launches.back().flights) {
    if (flight.calls.empty()) continue;
    const auto& call = flight.calls.back();
    text += fmt::format("  rank {}, last call {} of group {}: {}, {}\n", flight.rank, call.number,
                        flight.group, call.call, call.is_complete ? "complete" : "waiting");
  }
  return text;
}

std::string checkpoints_text(const RunFigures& figures) {
  return figures.saved_step < 0 ? ""
                                : fmt::format("newest at step {}", grouped(figures.saved_step));
}

}  // namespace

std::string run_text(const RunRecord& run) {
  const auto figures = figures_of(run);
  auto text = fmt::format("{}: {}\n{}\n", run.folder, outcome_word(run.outcome),
                          verdict_text(run, figures));
  const auto plot = text_plot({curve_of(run.metrics.train, '.'), curve_of(run.metrics.eval, 'o')});
  if (!plot.empty()) text += fmt::format("\nloss ('.' training, 'o' validation)\n{}\n", plot);
  if (const auto loss = run.metrics.eval.last("loss")) {
    text += line("validation loss",
                 fmt::format("{:.4f}; best {:.4f} at step {}", *loss,
                             figures.best_loss.value_or(*loss), grouped(figures.best_step)));
  }
  if (figures.speed > 0) {
    text += line("throughput",
                 figure_text(figures.speed, Unit::count) + " " + figures.unit + " per second");
  }
  if (figures.active_seconds > 0) {
    const auto starts = run.metrics.sessions.size();
    text += line("time", figure_text(figures.active_seconds, Unit::duration) +
                             (starts > 1 ? fmt::format(" in {} starts", starts) : ""));
  }
  text += line("checkpoints", checkpoints_text(figures));
  std::string given;
  for (const auto& setting : run.settings) {
    if (setting.origin != "default")
      given += fmt::format("{}{}={}", given.empty() ? "" : " ", setting.name, setting.value);
  }
  text += line("settings", given);
  if (figures.analysis.step_ms > 0) text += "\n" + to_text(figures.analysis);
  return text + failure_text(run);
}

std::string comparison_text(std::span<const RunRecord> runs) {
  std::string text = fmt::format("{:<24} {:<9} {:>5} {:>9} {:>10} {:>10} {:>12}\n", "run", "",
                                 "ranks", "steps", "training", "validation", "throughput");
  for (const auto& run : runs) {
    const auto figures = figures_of(run);
    const auto number = [](std::optional<double> value) {
      return value ? fmt::format("{:.4f}", *value) : std::string("-");
    };
    text +=
        fmt::format("{:<24} {:<9} {:>5} {:>9} {:>10} {:>10} {:>12}\n", run.folder,
                    outcome_word(run.outcome), run.world, grouped(run.metrics.last_step()),
                    number(run.metrics.train.last("loss")), number(run.metrics.eval.last("loss")),
                    figures.speed > 0 ? figure_text(figures.speed, Unit::count_rate) : "-");
  }
  text += "\n";
  for (std::size_t i = 1; i < runs.size(); ++i) {
    text +=
        fmt::format("{} and {}: the training losses {}.\n", runs[0].folder, runs[i].folder,
                    in_words(find_parting(runs[0].metrics.train, runs[i].metrics.train, "loss")));
  }
  if (const auto answer = scaling_answer(runs)) text += answer->text + "\n";
  const auto differences = setting_differences(runs);
  text += differences.empty() ? "\nNo setting differs.\n" : "\nSettings that differ:\n";
  for (const auto& difference : differences) {
    text += fmt::format("  {:<16}", difference.name);
    for (const auto& value : difference.values)
      text += fmt::format(" {:<16}", value.empty() ? "-" : value);
    while (text.ends_with(' ')) text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
