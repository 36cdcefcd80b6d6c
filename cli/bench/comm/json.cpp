// The JSON of report.h. docs/bench.md documents the schema; times are in microseconds,
// rates in bytes per second.

#include "lockstep/base/json.h"
#include "cli/bench/comm/report.h"
#include "lockstep/base/version.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

ordered_json figures_json(const CommFigures& figures) {
  ordered_json rounds = ordered_json::array();
  for (const double p50 : figures.round_p50) rounds.push_back(p50 * 1e6);
  return {{"p50_us", figures.p50 * 1e6},      {"p99_us", figures.p99 * 1e6},
          {"max_us", figures.max * 1e6},      {"hot_p50_us", figures.hot * 1e6},
          {"iterations", figures.iterations}, {"p50_us_of_rounds", rounds}};
}

ordered_json row_json(const CommReport& report, const CommRow& row) {
  const auto& ours = row.backends.front().value();
  const auto rates = rates_of(row, report.request.ranks);
  ordered_json json{{"op", to_string(row.timed.op)},
                    {"dtype", to_string(row.timed.dtype)},
                    {"memory", to_string(row.timed.memory)},
                    {"bytes", row.timed.bytes},
                    {"algbw", rates.algorithm_bandwidth},
                    {"busbw", rates.bus_bandwidth},
                    {"in_place_add", nullptr},
                    {"bound_us", nullptr},
                    {"bound_share", nullptr}};
  if (report.request.on_one_host) {
    json["in_place_add"] = ours.add_bytes_per_second;
    json["bound_us"] = rates.bound * 1e6;
    json["bound_share"] = rates.bound_share;
  }
  for (std::size_t backend = 0; backend < report.names.size(); ++backend) {
    const auto& figures = row.backends[backend];
    auto& entry = json["backends"][report.names[backend]];
    if (!figures) continue;  // null: the backend does not support the case
    entry = figures_json(*figures);
    if (backend > 0) entry["ratio"] = figures->p50 / ours.p50;
  }
  return json;
}

}  // namespace

std::string json_text(const CommReport& report) {
  const auto& request = report.request;
  ordered_json json{{"schema", "lockstep-bench-comm-2"},
                    {"lockstep", kVersion},
                    {"build", report.build},
                    {"ranks", request.ranks},
                    {"hosts", ordered_json::array()},
                    {"cores", nullptr},
                    {"processors", request.processors},
                    {"last_level_cache", report.machine.last_level_cache()},
                    {"rotation_bytes", request.rotation_bytes},
                    {"rounds", report.rounds},
                    {"load", nullptr}};
  for (const auto& host : report.hosts) {
    json["hosts"].push_back({{"name", host.name}, {"ranks", host.ranks}});
  }
  if (request.on_one_host) json["cores"] = report.machine.cpu.num_cores();
  if (report.load) json["load"] = *report.load;
  for (std::size_t backend = 0; backend < report.names.size(); ++backend) {
    json["backends"][report.names[backend]] = report.abouts[backend];
  }
  json["rows"] = ordered_json::array();
  for (const auto& row : report.rows) json["rows"].push_back(row_json(report, row));
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace lockstep::cli
