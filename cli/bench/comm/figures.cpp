// The numbers of report.h.
#include <algorithm>
#include <cmath>

#include "cli/bench/comm/jobs.h"
#include "cli/bench/comm/report.h"

namespace lockstep::cli {
namespace {

template <typename Pick>
double median_over(const std::vector<CommSamples>& rounds, Pick pick) {
  std::vector<double> values;
  for (const auto& round : rounds) values.push_back(pick(round));
  return percentile(values, 0.5);
}

// The samples of one case over all rounds; nullopt if the backend does not support the case.
std::optional<CommFigures> figures_of(const std::vector<CommAnswer>& rounds, std::size_t index) {
  std::vector<CommSamples> samples;
  for (const auto& answer : rounds) {
    if (index >= answer.samples.size() || !answer.samples[index]) return std::nullopt;
    samples.push_back(*answer.samples[index]);
  }
  return samples.empty() ? std::nullopt : std::optional(combine_rounds(samples));
}

}  // namespace

double percentile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  const auto wanted = std::ceil(fraction * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(wanted, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

CommFigures combine_rounds(const std::vector<CommSamples>& rounds) {
  CommFigures figures;
  for (const auto& round : rounds) {
    figures.round_p50.push_back(percentile(round.cold, 0.5));
    figures.max = std::max(figures.max, percentile(round.cold, 1));
    figures.iterations += static_cast<int>(round.cold.size());
  }
  figures.p50 = percentile(figures.round_p50, 0.5);
  figures.p99 = median_over(rounds, [](const auto& round) { return percentile(round.cold, 0.99); });
  figures.hot = median_over(rounds, [](const auto& round) { return percentile(round.hot, 0.5); });
  figures.add_bytes_per_second =
      median_over(rounds, [](const auto& round) { return round.add_bytes_per_second; });
  return figures;
}

std::vector<CommRow> rows_of(const CommRequest& request,
                             const std::vector<std::vector<CommAnswer>>& answers) {
  const auto peer_cases = peer_request(request).cases;
  std::vector<CommRow> rows;
  for (std::size_t index = 0; index < request.cases.size(); ++index) {
    CommRow row{.timed = request.cases[index]};
    auto same = row.timed;
    same.memory = MemoryKind::ordinary;
    const auto peer_index =
        static_cast<std::size_t>(std::ranges::find(peer_cases, same) - peer_cases.begin());
    for (std::size_t backend = 0; backend < answers.size(); ++backend) {
      row.backends.push_back(figures_of(answers[backend], backend == 0 ? index : peer_index));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

CommRates rates_of(const CommRow& row, int ranks) {
  const auto& ours = row.backends.front().value();
  CommRates rates;
  rates.algorithm_bandwidth = static_cast<double>(row.timed.bytes) / ours.p50;
  rates.bus_bandwidth = rates.algorithm_bandwidth * bus_factor(row.timed.op, ranks);
  if (ours.add_bytes_per_second <= 0) return rates;
  rates.bound = least_traffic(row.timed, ranks) / ours.add_bytes_per_second;
  rates.bound_share = rates.bound / ours.p50;
  return rates;
}

}  // namespace lockstep::cli
