// The figures and sentences at the top of a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

// The number at the start of a setting: "600" of "600", "5e+07" of "50M".
std::optional<double> amount(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  switch (*end) {
    case 'k':
      return value * 1e3;
    case 'M':
      return value * 1e6;
    case 'G':
    case 'B':
      return value * 1e9;
    default:
      return value;
  }
}

std::optional<std::int64_t> total_steps(const RunRecord& run, double units_per_step) {
  if (const auto steps = amount(run.setting("steps"))) return std::llround(*steps);
  const auto tokens = amount(run.setting("tokens"));
  if (tokens && units_per_step > 0) return std::llround(std::ceil(*tokens / units_per_step));
  return std::nullopt;
}

const RunEvent* last_event(const RunMetrics& metrics, std::string_view name) {
  const auto found = std::find_if(metrics.events.rbegin(), metrics.events.rend(),
                                  [&](const RunEvent& event) { return event.event == name; });
  return found == metrics.events.rend() ? nullptr : &*found;
}

double number_of(const RunEvent& event, const std::string& name, double otherwise) {
  const auto found = event.numbers.find(name);
  return found == event.numbers.end() || std::isnan(found->second) ? otherwise : found->second;
}

void find_best(const RunMetrics& metrics, RunFigures& figures) {
  const auto* loss = metrics.eval.find("loss");
  if (!loss) return;
  for (std::size_t row = 0; row < loss->size(); ++row) {
    const double value = (*loss)[row];
    if (!std::isfinite(value) || (figures.best_loss && value >= *figures.best_loss)) continue;
    figures.best_loss = value;
    figures.best_step = static_cast<std::int64_t>(metrics.eval.step[row]);
  }
}

// The mean of throughput weighted by time: all units over all seconds of steps.
double mean_speed(const MetricColumns& train, const std::vector<double>& speed) {
  const auto* step_ms = train.find("step_ms");
  double units = 0;
  double seconds = 0;
  for (std::size_t row = 1; row < speed.size(); ++row) {  // the first interval includes the start
    const double steps = train.step[row] - train.step[row - 1];
    const double time = step_ms ? steps * (*step_ms)[row] / 1e3 : steps;
    if (!std::isfinite(speed[row]) || !(time > 0)) continue;
    units += speed[row] * time;
    seconds += time;
  }
  return seconds > 0 ? units / seconds : speed.empty() ? 0 : speed.back();
}

void find_speed(const RunRecord& run, RunFigures& figures) {
  const auto& train = run.metrics.train;
  const auto* speed = train.find("tokens_per_second");
  figures.unit = speed ? "tokens" : "samples";
  if (!speed) speed = train.find("samples_per_second");
  if (!speed) return;
  figures.speed = mean_speed(train, *speed);
  if (const auto step_ms = train.last("step_ms"); step_ms && !speed->empty()) {
    figures.units_per_step = std::round(speed->back() * *step_ms / 1e3);
  }
}

// The mean time per step over the last rows, with evaluations and saves between them.
double recent_seconds_per_step(const RunMetrics& metrics) {
  const auto& train = metrics.train;
  if (train.step.size() < 2 || metrics.sessions.empty()) return 0;
  const std::size_t last = train.step.size() - 1;
  std::size_t first = last > 50 ? last - 50 : 0;
  while (first < last && train.time[first] < metrics.sessions.back().begin) ++first;
  const double steps = train.step[last] - train.step[first];
  return steps > 0 ? (train.time[last] - train.time[first]) / steps : 0;
}

std::string loss_sentence(const RunRecord& run, const RunFigures& figures) {
  const auto* loss = run.metrics.eval.find("loss");
  if (loss && !loss->empty() && figures.best_loss && std::isfinite(loss->back())) {
    const auto last_step = static_cast<std::int64_t>(run.metrics.eval.step.back());
    if (loss->size() == 1) return fmt::format("Validation loss {:.4f}.", loss->back());
    return figures.best_step == last_step
               ? fmt::format(
                     "Validation loss went from {:.4f} to {:.4f}; the last value is the best.",
                     loss->front(), loss->back())
               : fmt::format(
                     "Validation loss went from {:.4f} to {:.4f}; the best was {:.4f} at step {}.",
                     loss->front(), loss->back(), *figures.best_loss, grouped(figures.best_step));
  }
  const auto* train = run.metrics.train.find("loss");
  if (!train || train->empty()) return {};
  return fmt::format("Training loss went from {:.4f} to {:.4f}.", train->front(), train->back());
}

std::string resume_sentence(const RunRecord& run, const RunFigures& figures) {
  if (run.settings.empty()) return {};  // not a run of the trainer
  return figures.saved_step >= 0
             ? fmt::format(
                   " The newest checkpoint is that of step {}; the same command resumes from it.",
                   grouped(figures.saved_step))
             : " The same command resumes from the newest checkpoint.";
}

std::string progress_sentence(const RunRecord& run, const RunFigures& figures) {
  const auto step = run.metrics.last_step();
  if (step == 0) return "The ranks have started; there are no figures yet.";
  if (!figures.total_steps) return fmt::format("Step {}.", grouped(step));
  const double left = static_cast<double>(*figures.total_steps - step) * figures.seconds_per_step;
  return fmt::format("Step {} of {}{}.", grouped(step), grouped(*figures.total_steps),
                     left > 0 ? ", about " + figure_text(left, Unit::duration) + " left" : "");
}

std::string culprit_sentence(const EndRecord& end) {
  if (!end.culprit) return end.reason.empty() ? "" : ": " + end.reason;
  const auto& rank = *end.culprit;
  return fmt::format(": rank {} on {} ended with {}", rank.rank, rank.host, rank.how);
}

}  // namespace

AnalysisInput analysis_input_of(const RunMetrics& metrics) {
  AnalysisInput input{.buckets = metrics.buckets};
  for (const auto& rank : metrics.ranks) {
    input.intervals.insert(input.intervals.end(), rank.begin(), rank.end());
  }
  if (const auto* start = last_event(metrics, "start")) {
    input.facts.workers = static_cast<int>(number_of(*start, "workers", 0));
    input.facts.save_every = number_of(*start, "save_every", 0);
    input.facts.bucket_bytes = number_of(*start, "bucket_bytes", input.facts.bucket_bytes);
    const auto backend = start->texts.find("backend");
    if (backend != start->texts.end()) input.facts.backend = backend->second;
  }
  return input;
}

RunFigures figures_of(const RunRecord& run) {
  RunFigures figures;
  const auto& metrics = run.metrics;
  auto input = analysis_input_of(metrics);
  if (!input.intervals.empty()) figures.analysis = analyse(input);
  find_best(metrics, figures);
  find_speed(run, figures);
  figures.total_steps = total_steps(run, figures.units_per_step);
  figures.seconds_per_step = recent_seconds_per_step(metrics);
  for (const auto& session : metrics.sessions)
    figures.active_seconds += session.end - session.begin;
  if (!metrics.sessions.empty()) figures.begin = metrics.sessions.front().begin;
  figures.end = std::max(metrics.last_time, figures.begin);
  for (const auto& event : metrics.events) {
    if (event.event == "save") figures.saved_step = event.step;
  }
  return figures;
}

std::string outcome_word(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::running:
      return "Running";
    case RunOutcome::finished:
      return "Finished";
    case RunOutcome::stopped:
      return "Stopped";
    case RunOutcome::failed:
      return "Failed";
    case RunOutcome::killed:
      return "Killed";
  }
  return {};
}

std::string outcome_class(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::running:
      return "running";
    case RunOutcome::finished:
      return "good";
    case RunOutcome::stopped:
      return "paused";
    default:
      return "bad";
  }
}

std::string verdict_text(const RunRecord& run, const RunFigures& figures) {
  const auto step = grouped(run.metrics.last_step());
  const auto loss = loss_sentence(run, figures);
  const auto with = [&](std::string text) { return loss.empty() ? text : text + " " + loss; };
  const auto* end = run.last_end();
  switch (run.outcome) {
    case RunOutcome::running:
      return with(progress_sentence(run, figures));
    case RunOutcome::finished: {
      if (run.metrics.train.step.empty()) return "Every rank ended with exit code 0.";
      const auto ranks = run.world > 0
                             ? fmt::format(" on {} rank{}", run.world, run.world == 1 ? "" : "s")
                             : std::string();
      return with(fmt::format("{} steps in {}{}.", step,
                              figure_text(figures.active_seconds, Unit::duration), ranks));
    }
    case RunOutcome::stopped:
      return with(fmt::format("Stopped at step {}{}.{}", step,
                              end && !end->signal.empty() ? " by " + end->signal : "",
                              resume_sentence(run, figures)));
    case RunOutcome::failed:
      return fmt::format("Failed{}{}.{}",
                         run.metrics.train.step.empty() ? "" : " after step " + step,
                         end ? culprit_sentence(*end) : "", resume_sentence(run, figures));
    case RunOutcome::killed:
      if (run.launches.empty()) {  // under another launcher, which writes no record
        return fmt::format(
            "Ended after step {} without a record of its end: it failed or was killed.{}", step,
            resume_sentence(run, figures));
      }
      return fmt::format(
          "Killed after step {}: the launcher left no record of an end, so it was killed, or the "
          "machine stopped.{}",
          step, resume_sentence(run, figures));
  }
  return {};
}

std::string date_text(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace lockstep
