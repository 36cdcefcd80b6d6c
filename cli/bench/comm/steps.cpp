#include "cli/bench/comm/steps.h"

#include <fcntl.h>
#include <stdlib.h>  // NOLINT: getloadavg is not in <cstdlib>
#include <unistd.h>

#include <array>

#include "cli/bench/comm/buffer_plan.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep::cli {
namespace {

void write_file(const std::string& path, const std::string& text, std::ostream& out) {
  if (path.empty()) return;
  const auto file = FileDescriptor::open(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_all(file.number(), std::as_bytes(std::span(text)), path);
  out << "written: " << path << '\n';
}

}  // namespace

CommRequest plan_request(const BenchCommOptions& options, int ranks, std::size_t last_level_cache) {
  CommRequest request{.ranks = ranks,
                      .seconds = std::chrono::duration<double>(options.time).count(),
                      .iterations = options.iterations};
  for (const auto op : options.ops) {
    for (const auto dtype : options.dtypes) {
      for (const auto memory : options.memory) {
        for (const auto bytes : options.sizes) {
          request.cases.push_back(whole_case(
              {.op = op, .dtype = dtype, .bytes = bytes, .memory = memory}, request.ranks));
        }
      }
    }
  }
  plan_memory(request, last_level_cache);
  return request;
}

int rounds_of(const BenchCommOptions& options) {
  if (options.rounds > 0) return options.rounds;
  return options.compare.empty() ? 1 : 3;
}

std::optional<double> load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? std::optional(load) : std::nullopt;
}

std::string host_name() {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return name.data();
}

void finish_report(CommReport& report, const std::vector<std::vector<CommAnswer>>& answers,
                   const BenchCommOptions& options, std::ostream& out) {
  for (const auto& rounds : answers) {
    report.names.push_back(rounds.front().name);
    report.abouts.push_back(rounds.front().about);
  }
  report.rows = rows_of(report.request, answers);
  out << table_text(report);
  write_file(options.json, json_text(report), out);
  write_file(options.svg, svg_text(report), out);
  out << std::flush;
}

}  // namespace lockstep::cli
