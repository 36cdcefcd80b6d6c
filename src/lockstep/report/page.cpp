#include "lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/page_parts_internal.h"
#include "lockstep/report/rank_charts.h"

namespace lockstep {
namespace {

struct Tile {
  std::string name;
  std::string value;
  std::string more = {};
};

// A number and its unit stay on one line.
std::string unbroken(std::string html) {
  for (auto at = html.find(" %"); at != std::string::npos; at = html.find(" %", at)) {
    html.replace(at, 1, "&nbsp;");
  }
  return html;
}

std::string tile_html(const Tile& tile) {
  return fmt::format(
      R"(<div class="tile"><span class="name">{}</span><span class="value">{}</span><span class="more">{}</span></div>
)",
      escaped(tile.name), escaped(tile.value), unbroken(escaped(tile.more)));
}

double part(const RunAnalysis& analysis, StepPart which) {
  return analysis.split_ms[static_cast<std::size_t>(which)] / analysis.step_ms;
}

std::vector<Tile> learning_tiles(const RunRecord& run, const RunFigures& figures) {
  std::vector<Tile> tiles;
  const auto& eval = run.metrics.eval;
  if (const auto loss = eval.last("loss")) {
    const bool is_best = figures.best_step == static_cast<std::int64_t>(eval.step.back());
    tiles.push_back({"Validation loss", fmt::format("{:.4f}", *loss),
                     is_best
                         ? "best so far"
                         : fmt::format("best {:.4f} at step {}", figures.best_loss.value_or(*loss),
                                       grouped(figures.best_step))});
  }
  if (const auto accuracy = eval.last("accuracy")) {
    tiles.push_back({"Validation accuracy", figure_text(*accuracy, Unit::fraction)});
  }
  if (const auto loss = run.metrics.train.last("loss")) {
    const auto first = run.metrics.train.find("loss")->front();
    tiles.push_back({"Training loss", fmt::format("{:.4f}", *loss),
                     std::isfinite(first) ? fmt::format("{:.4f} at the start", first) : ""});
  }
  return tiles;
}

std::vector<Tile> speed_tiles(const RunRecord& run, const RunFigures& figures) {
  std::vector<Tile> tiles;
  if (figures.speed > 0) {
    tiles.push_back(
        {"Throughput", figure_text(figures.speed, Unit::count), figures.unit + " per second"});
  }
  const auto& analysis = figures.analysis;
  if (analysis.step_ms > 0) {
    std::vector<double> p50;
    for (const auto& rank : analysis.ranks) p50.push_back(rank.p50_ms);
    std::ranges::sort(p50);
    tiles.push_back(
        {"Median step",
         figure_text(p50.empty() ? analysis.step_ms : p50[p50.size() / 2], Unit::milliseconds),
         fmt::format("mean {}", figure_text(analysis.step_ms, Unit::milliseconds))});
    const double compute = part(analysis, StepPart::forward) + part(analysis, StepPart::backward) +
                           part(analysis, StepPart::optimizer);
    tiles.push_back({"Time in compute", figure_text(compute, Unit::fraction),
                     fmt::format("data wait {}\nexposed comm. {}",
                                 figure_text(part(analysis, StepPart::data_wait), Unit::fraction),
                                 figure_text(part(analysis, StepPart::exposed), Unit::fraction))});
    double memory = 0;
    for (const auto& rank : analysis.ranks) memory = std::max(memory, rank.peak_rss_bytes);
    if (memory > 0)
      tiles.push_back({"Peak memory", figure_text(memory, Unit::bytes), "largest rank"});
  } else if (const auto step_ms = run.metrics.train.last("step_ms")) {
    tiles.push_back({"Time per step", figure_text(*step_ms, Unit::milliseconds), "last interval"});
  }
  if (figures.active_seconds > 0) {
    const auto sessions = run.metrics.sessions.size();
    tiles.push_back({"Training time", figure_text(figures.active_seconds, Unit::duration),
                     sessions > 1 ? fmt::format("in {} starts", sessions)
                                  : fmt::format("step {}", grouped(run.metrics.last_step()))});
  }
  return tiles;
}

std::string progress_html(const RunRecord& run, const RunFigures& figures) {
  if (!figures.total_steps || *figures.total_steps <= 0 || run.metrics.last_step() == 0) return {};
  const double percent = std::min(100.0, 100.0 * static_cast<double>(run.metrics.last_step()) /
                                             static_cast<double>(*figures.total_steps));
  return fmt::format(
      R"(<div class="progress" role="progressbar" aria-valuenow="{0:.0f}" aria-valuemin="0" aria-valuemax="100"><i style="width:{0:.1f}%"></i></div>)",
      percent);
}

std::string subtitle(const RunRecord& run, const RunFigures& figures) {
  std::vector<std::string> parts;
  if (!run.model.empty()) parts.push_back("lockstep train " + run.model);
  if (!run.data.empty()) parts.push_back(run.data);
  if (run.world > 0)
    parts.push_back(fmt::format("{} rank{}", run.world, run.world == 1 ? "" : "s"));
  if (figures.begin > 0) parts.push_back("started " + date_text(figures.begin));
  std::string text;
  for (const auto& one : parts) text += (text.empty() ? "" : " · ") + one;
  return escaped(text);
}

std::string header_html(const RunRecord& run, const RunFigures& figures,
                        const PageOptions& options) {
  const bool active = run.outcome == RunOutcome::running;
  return fmt::format(
      R"(<header class="{css}"><p class="brand">lockstep</p>
<div class="headline"><h1>{name}</h1><span class="pill">{word}</span></div>
<p class="sub">{sub}</p>
<p class="verdict">{verdict}</p>
{progress}
<p class="stamp" data-written="{now:.0f}" data-reload="{reload:.0f}">Written {date}{live}</p></header>
)",
      fmt::arg("css", outcome_class(run.outcome)), fmt::arg("name", escaped(run.name)),
      fmt::arg("word", outcome_word(run.outcome)), fmt::arg("sub", subtitle(run, figures)),
      fmt::arg("verdict", escaped(verdict_text(run, figures))),
      fmt::arg("progress", run.outcome == RunOutcome::finished ? "" : progress_html(run, figures)),
      fmt::arg("now", options.now), fmt::arg("reload", active ? options.reload_after : 0),
      fmt::arg("date", date_text(options.now)),
      fmt::arg("live", active && options.reload_after > 0
                           ? ". While the run is active, this page is written again and reloads "
                             "itself. If that time is long past, the run was killed."
                           : ""));
}

std::string finding(std::string_view css_class, const std::string& title, const std::string& text,
                    const std::string& action, const std::string& gain) {
  return fmt::format(
      R"(<li class="{}"><b>{}</b> {}{}{}</li>
)",
      css_class, escaped(title), escaped(text),
      action.empty() ? "" : fmt::format(R"( <span class="action">→ {}</span>)", escaped(action)),
      gain.empty() ? "" : fmt::format(R"( <span class="gain">{}</span>)", escaped(gain)));
}

std::string cause_title(Cause cause) {
  switch (cause) {
    case Cause::data:
      return "Data loading:";
    case Cause::compute:
      return "A slower rank:";
    case Cause::processor:
      return "A busy processor:";
    case Cause::steal:
      return "Stolen processor time:";
    case Cause::throttled:
      return "A processor quota:";
    case Cause::checkpoint:
      return "Checkpoints:";
    case Cause::evaluation:
      return "Evaluations:";
    case Cause::link:
      return "Communication:";
    case Cause::small_buckets:
      return "Small buckets:";
  }
  return {};
}

std::string findings_html(const RunFigures& figures) {
  const auto& analysis = figures.analysis;
  if (analysis.step_ms <= 0) return {};
  std::string items;
  for (const auto& advice : analysis.advice) {
    items += finding("hint", cause_title(advice.cause), advice.text, advice.action,
                     fmt::format("saves about {}", figure_text(advice.gain, Unit::fraction)));
  }
  for (const auto& straggler : analysis.stragglers) {
    const bool is_known = std::ranges::any_of(analysis.advice, [&](const Advice& advice) {
      return advice.rank == straggler.rank && advice.cause == straggler.cause;
    });
    if (!is_known) items += finding("hint", cause_title(straggler.cause), straggler.text, "", "");
  }
  if (items.empty()) {
    items =
        finding("calm", "Nothing stands out.",
                analysis.world > 1 ? "No rank keeps the others waiting, and neither data, "
                                     "checkpoints nor communication take a notable part of a step."
                                   : "Neither data nor checkpoints take a notable part of a step.",
                "", "");
  }
  return fmt::format(
      R"(<section class="card findings" id="findings"><h2>What would make it faster</h2><ul>{}</ul></section>
)",
      items);
}

std::string charts_html(const std::vector<Chart>& charts) {
  std::string html;
  for (const auto& chart : charts) html += chart_html(chart);
  return html;
}

std::string section(std::string_view id, std::string_view title, const std::string& inner) {
  if (inner.empty()) return {};
  return fmt::format(
      R"(<section class="block" id="{}"><h2>{}</h2><div class="grid">{}</div></section>
)",
      id, title, inner);
}

std::string rank_table(const RunAnalysis& analysis) {
  if (analysis.ranks.empty()) return {};
  std::string rows;
  for (const auto& rank : analysis.ranks) {
    rows += fmt::format(
        "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        rank.rank, figure_text(rank.step_ms, Unit::milliseconds),
        figure_text(rank.p50_ms, Unit::milliseconds), figure_text(rank.max_ms, Unit::milliseconds),
        figure_text(rank.late_ms, Unit::milliseconds), figure_text(rank.last, Unit::fraction),
        figure_text(rank.peak_rss_bytes, Unit::bytes));
  }
  return fmt::format(
      R"(<figure class="rows wide" id="ranks"><details><summary>Figures of every rank</summary><div class="scroll"><table class="numbers"><thead><tr><th>rank</th><th>mean step</th><th>p50</th><th>longest</th><th>late by</th><th>last to arrive</th><th>peak memory</th></tr></thead><tbody>
{}</tbody></table></div></details></figure>
)",
      rows);
}

std::string footer_html(const RunRecord& run, const PageOptions& options) {
  auto text =
      fmt::format("Written by lockstep {} from the files in {}.", options.version, run.folder);
  if (run.metrics.num_invalid > 0) {
    text += fmt::format(" {} line{} of metrics.jsonl could not be read.", run.metrics.num_invalid,
                        run.metrics.num_invalid == 1 ? "" : "s");
  }
  return fmt::format("<footer>{} Drag over a chart to zoom, double-click to return.</footer>\n",
                     escaped(text));
}

}  // namespace

std::string run_page(const RunRecord& run, const PageOptions& options) {
  const auto figures = figures_of(run);
  auto body = header_html(run, figures, options);
  body += failure_html(run);
  std::string tiles;
  for (const auto& tile : learning_tiles(run, figures)) tiles += tile_html(tile);
  for (const auto& tile : speed_tiles(run, figures)) tiles += tile_html(tile);
  if (!tiles.empty())
    body += fmt::format(R"(<section class="tiles">{}</section>
)",
                        tiles);
  body += section("learning", "Learning", charts_html(learning_charts(run)));
  body += samples_html(run);
  body += findings_html(figures);
  body += section("speed", "Speed",
                  split_html(figures.analysis) + heat_map_html(run.metrics.ranks) +
                      charts_html(speed_charts(run, figures)) + buckets_html(figures.analysis) +
                      rank_table(figures.analysis));
  body += section("course", "Course of the run", timeline_html(run, figures));
  body += section("machine", "Machine", charts_html(machine_charts(run)));
  const auto tables = settings_html(run) + environment_html(run) + sample_record_html(run, figures);
  if (!tables.empty()) body += fmt::format(R"(<div class="tables">{}</div>)", tables);
  body += footer_html(run, options);
  const bool active = run.outcome == RunOutcome::running;
  return whole_page(fmt::format("{}: {}", run.name, outcome_word(run.outcome)), body,
                    active ? options.reload_after : 0);
}

}  // namespace lockstep
