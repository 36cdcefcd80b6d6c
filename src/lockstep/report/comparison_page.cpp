// The page of several runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/comparison.h"
#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kPoints = 800;

// Names are the last parts of the folders; equal ones get the whole folder.
std::vector<std::string> names_of(std::span<const RunRecord> runs) {
  std::vector<std::string> names;
  for (const auto& run : runs) {
    const auto same = std::ranges::count(runs, run.name, &RunRecord::name);
    names.push_back(same > 1 ? run.folder : run.name);
  }
  return names;
}

Chart overlay(std::span<const RunRecord> runs, const std::vector<std::string>& names,
              const MetricColumns RunMetrics::*rows, std::string_view column, Chart chart) {
  chart.x = {.title = "step", .unit = Unit::count};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& table = runs[i].metrics.*rows;
    const auto* values = table.find(column);
    if (!values) continue;
    auto points = downsample(table.step, *values, kPoints);
    const bool is_eval = rows == &RunMetrics::eval;
    chart.series.push_back(
        {.name = names[i],
         .color = static_cast<int>(i % 8) + 1,
         .style = is_eval && points.size() <= 60 ? LineStyle::points : LineStyle::line,
         .points = std::move(points)});
  }
  return chart;
}

// On a phone a row becomes a block, and its cells need their names.
std::string overview_html(std::span<const RunRecord> runs, const std::vector<std::string>& names) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto figures = figures_of(runs[i]);
    const auto validation = runs[i].metrics.eval.last("loss");
    const auto training = runs[i].metrics.train.last("loss");
    rows += fmt::format(
        R"(<tr><th><i class="swatch c{}"></i>{}</th><td><span class="pill {}">{}</span></td><td data-name="ranks">{}</td><td data-name="steps">{}</td><td data-name="training loss">{}</td><td data-name="validation">{}</td><td data-name="best">{}</td><td data-name="throughput">{}</td><td data-name="time">{}</td></tr>
)",
        i % 8 + 1, escaped(names[i]), outcome_class(runs[i].outcome), outcome_word(runs[i].outcome),
        runs[i].world > 0 ? std::to_string(runs[i].world) : "–",
        grouped(runs[i].metrics.last_step()), training ? fmt::format("{:.4f}", *training) : "–",
        validation ? fmt::format("{:.4f}", *validation) : "–",
        figures.best_loss ? fmt::format("{:.4f}", *figures.best_loss) : "–",
        figures.speed > 0 ? figure_text(figures.speed, Unit::count_rate) : "–",
        figure_text(figures.active_seconds, Unit::duration));
  }
  return fmt::format(
      R"(<section class="card" id="runs"><h2>Runs</h2><div class="scroll"><table class="numbers stacked"><thead><tr><th>run</th><th></th><th>ranks</th><th>steps</th><th>training loss</th><th>validation</th><th>best</th><th>throughput</th><th>time</th></tr></thead><tbody>
{}</tbody></table></div></section>
)",
      rows);
}

std::string partings_html(std::span<const RunRecord> runs, const std::vector<std::string>& names) {
  std::string items;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const auto parting = find_parting(runs[0].metrics.train, runs[i].metrics.train, "loss");
    items += fmt::format(R"(<li class="{}"><b>{}</b> and <b>{}</b>: the training losses {}.</li>
)",
                         parting.first_step ? "hint" : "calm", escaped(names[0]), escaped(names[i]),
                         escaped(in_words(parting)));
  }
  if (const auto answer = scaling_answer(runs)) {
    items += fmt::format(R"(<li class="hint"><b>More ranks.</b> {}</li>
)",
                         escaped(answer->text));
  }
  return fmt::format(
      R"(<section class="card findings" id="differences"><h2>How they differ</h2><ul>{}</ul></section>
)",
      items);
}

std::string differences_html(std::span<const RunRecord> runs,
                             const std::vector<std::string>& names) {
  const auto differences = setting_differences(runs);
  if (differences.empty()) {
    return R"(<section class="card" id="settings"><h2>Settings that differ</h2><p class="note">None.</p></section>
)";
  }
  std::string head = "<th>setting</th>";
  for (const auto& name : names) head += fmt::format("<th>{}</th>", escaped(name));
  std::string rows;
  for (const auto& difference : differences) {
    rows += fmt::format("<tr><th>{}</th>", escaped(difference.name));
    for (const auto& value : difference.values) {
      rows += fmt::format("<td>{}</td>", value.empty() ? "–" : escaped(value));
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      R"(<section class="card" id="settings"><h2>Settings that differ</h2><div class="scroll"><table><thead><tr>{}</tr></thead><tbody>
{}</tbody></table></div></section>
)",
      head, rows);
}

std::string scaling_html(std::span<const RunRecord> runs, const std::vector<std::string>& names) {
  const auto answer = scaling_answer(runs);
  if (!answer) return {};
  const auto row = [](std::string_view name, const double(&pair)[2]) {
    return fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{:+.1f} ms</td></tr>\n", name,
                       figure_text(pair[0], Unit::milliseconds),
                       figure_text(pair[1], Unit::milliseconds), pair[1] - pair[0]);
  };
  return fmt::format(
      R"(<section class="card" id="scaling"><h2>Time per step by number of ranks</h2><div class="scroll"><table class="numbers"><thead><tr><th></th><th>{} ({} ranks)</th><th>{} ({} ranks)</th><th>growth</th></tr></thead><tbody>
{}{}{}{}{}</tbody></table></div></section>
)",
      escaped(names[answer->small]), runs[answer->small].world, escaped(names[answer->large]),
      runs[answer->large].world, row("whole step", answer->step_ms),
      row("compute", answer->compute_ms), row("data wait", answer->data_wait_ms),
      row("communication", answer->communication_ms), row("gaps", answer->gaps_ms));
}

}  // namespace

std::string comparison_page(std::span<const RunRecord> runs, const PageOptions& options) {
  const auto names = names_of(runs);
  std::string title;
  for (const auto& name : names) title += (title.empty() ? "" : " · ") + name;
  std::string charts;
  charts += chart_html(overlay(runs, names, &RunMetrics::train, "loss",
                               {.id = "loss", .title = "Training loss", .height = 340}));
  charts += chart_html(overlay(runs, names, &RunMetrics::eval, "loss",
                               {.id = "validation", .title = "Validation loss"}));
  const bool tokens = std::ranges::any_of(runs, [](const RunRecord& run) {
    return run.metrics.train.find("tokens_per_second") != nullptr;
  });
  charts += chart_html(overlay(runs, names, &RunMetrics::train,
                               tokens ? "tokens_per_second" : "samples_per_second",
                               {.id = "throughput",
                                .title = tokens ? "Tokens per second" : "Samples per second",
                                .y = {.unit = Unit::count_rate, .from_zero = true}}));
  charts += chart_html(overlay(runs, names, &RunMetrics::train, "step_ms",
                               {.id = "step-time",
                                .title = "Time per step",
                                .y = {.unit = Unit::milliseconds, .from_zero = true}}));
  charts += chart_html(overlay(runs, names, &RunMetrics::train, "lr",
                               {.id = "lr", .title = "Learning rate", .y = {.from_zero = true}}));
  const auto body = fmt::format(
      R"(<header class="running"><p class="brand">lockstep</p><div class="headline"><h1>{}</h1></div>
<p class="sub">{} runs side by side</p><p class="stamp">Written {}</p></header>
{}{}<section class="block"><div class="grid">{}</div></section>
<div class="tables">{}{}</div>
<footer>Written by lockstep {}. Drag over a chart to zoom, double-click to return.</footer>
)",
      escaped(title), runs.size(), date_text(options.now), overview_html(runs, names),
      partings_html(runs, names), charts, differences_html(runs, names), scaling_html(runs, names),
      escaped(options.version));
  return whole_page(title, body, 0);
}

}  // namespace lockstep
