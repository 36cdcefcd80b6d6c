#include "lockstep/launch/rank_metrics.h"

#include <fmt/format.h>

#include <functional>

#include "lockstep/base/version.h"
#include "lockstep/metrics/prometheus.h"

namespace lockstep {
namespace {

using std::chrono::duration;

PrometheusFamily of_run(std::string name, std::string help, double value,
                        PrometheusType type = PrometheusType::gauge) {
  return {.name = std::move(name),
          .help = std::move(help),
          .type = type,
          .samples = {{.value = value}}};
}

using Labels = std::vector<std::pair<std::string, std::string>>;

Labels labels_of(const RankState& rank) {
  return {{"rank", std::to_string(rank.rank)},
          {"node", std::to_string(rank.node)},
          {"host", rank.host}};
}

// One sample per rank for which `value` gives one.
PrometheusFamily of_ranks(const RunState& run, std::string name, std::string help,
                          const std::function<std::optional<double>(const RankState&)>& value) {
  PrometheusFamily family{.name = std::move(name), .help = std::move(help)};
  for (const auto& rank : run.ranks) {
    if (const auto number = value(rank)) {
      family.samples.push_back({.labels = labels_of(rank), .value = *number});
    }
  }
  return family;
}

double in_seconds(std::chrono::nanoseconds time) { return duration<double>(time).count(); }

}  // namespace

std::string job_metrics(const RunState& run, const std::string& folder) {
  std::vector<PrometheusFamily> families{
      {.name = "lockstep_build_info",
       .help = "The version of lockstep.",
       .samples = {{.labels = {{"version", kVersion}}, .value = 1}}},
      of_run("lockstep_start_time_seconds", "When the job was started, since 1970.",
             duration<double>(run.started.time_since_epoch()).count()),
      of_run("lockstep_ranks", "Ranks of the job.", static_cast<double>(run.ranks.size())),
      of_run("lockstep_restarts_total", "Restarts of all ranks.", run.round,
             PrometheusType::counter),
      of_ranks(
          run, "lockstep_rank_up", "1 while the process of the rank runs.",
          [](const RankState& rank) { return rank.standing == RankStanding::running ? 1.0 : 0.0; }),
      of_ranks(
          run, "lockstep_rank_stopped", "1 while the process is stopped (SIGSTOP, a debugger).",
          [](const RankState& rank) { return rank.standing == RankStanding::stopped ? 1.0 : 0.0; }),
      of_ranks(run, "lockstep_rank_step", "The step that the rank is in.",
               [](const RankState& rank) -> std::optional<double> {
                 if (!rank.step) return std::nullopt;
                 return static_cast<double>(*rank.step);
               }),
      of_ranks(run, "lockstep_rank_step_age_seconds", "Time since this step began.",
               [](const RankState& rank) -> std::optional<double> {
                 if (!rank.step) return std::nullopt;
                 return in_seconds(rank.step_age);
               }),
      of_ranks(run, "lockstep_rank_resident_memory_bytes", "Resident memory of the process.",
               [](const RankState& rank) { return static_cast<double>(rank.memory_bytes); })};
  PrometheusFamily parts{.name = "lockstep_rank_part_age_seconds",
                         .help = "Time since the rank entered this part of the step."};
  for (const auto& rank : run.ranks) {
    if (rank.pid == 0) continue;
    auto labels = labels_of(rank);
    labels.emplace_back("part", name_of(rank.part));
    parts.samples.push_back({.labels = std::move(labels), .value = in_seconds(rank.age)});
  }
  families.push_back(std::move(parts));
  for (const auto& row : last_rows(folder + "/metrics.jsonl")) {
    for (auto& family : prometheus_of(row)) families.push_back(std::move(family));
  }
  return to_prometheus(families);
}

}  // namespace lockstep
