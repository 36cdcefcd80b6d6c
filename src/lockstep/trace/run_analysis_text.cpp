// The analysis of a run as text and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "lockstep/base/json.h"
#include "lockstep/trace/run_analysis.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRanks = 16;  // in the text; the JSON has all

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json split_json(const std::array<double, kNumStepParts>& split) {
  Json json;
  for (std::size_t i = 0; i < kNumStepParts; ++i) {
    json[fmt::format("{}_ms", name_of(static_cast<StepPart>(i)))] = rounded(split[i]);
  }
  return json;
}

// `text` in lines of at most `columns`, each after the first with `indent`.
std::string wrapped(const std::string& text, std::string_view indent, int columns) {
  std::string result;
  std::size_t line = indent.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(' ', begin), text.size());
    if (line + 1 + end - begin > static_cast<std::size_t>(columns) && line > indent.size()) {
      result += fmt::format("\n{}", indent);
      line = indent.size();
    } else if (!result.empty()) {
      result += ' ';
      ++line;
    }
    result += text.substr(begin, end - begin);
    line += end - begin;
    begin = end + 1;
  }
  return result;
}

std::string rank_table(const RunAnalysis& analysis) {
  std::string text = fmt::format("{:>6} {:>9} {:>9}", "rank", "step", "max");
  constexpr std::array<std::string_view, kNumStepParts> heads{
      "data", "forward", "backward", "exposed", "update", "eval", "save", "other"};
  for (const auto head : heads) text += fmt::format(" {:>9}", head);
  text += fmt::format(" {:>9}\n", "late");
  for (std::size_t i = 0; i < std::min(analysis.ranks.size(), kMaxRanks); ++i) {
    const auto& rank = analysis.ranks[i];
    text += fmt::format("{:>6} {:>9.2f} {:>9.2f}", rank.rank, rank.step_ms, rank.max_ms);
    for (const auto part : rank.split_ms) text += fmt::format(" {:>9.2f}", part);
    text += fmt::format(" {:>9.2f}\n", rank.late_ms);
  }
  if (analysis.ranks.size() > kMaxRanks) {
    text += fmt::format("  … and {} more ranks\n", analysis.ranks.size() - kMaxRanks);
  }
  return text;
}

std::string bucket_lines(const BucketAnalysis& buckets) {
  if (buckets.buckets.empty()) return {};
  auto text = fmt::format(
      "Buckets: {:.0f} with {:.1f} MB in total, {:.2f} GB/s on average; slowest: bucket {}{}\n",
      buckets.count, 1e-6 * buckets.total_bytes, buckets.mean_gb_per_s, buckets.slowest,
      buckets.slow.empty() ? "" : fmt::format("; below half of that: {}", buckets.slow.size()));
  return text + fmt::format(
                    "Overlap: {:.0f} % of the reductions; {:.0f} % possible with buckets of "
                    "{:.1f} MiB\n",
                    100 * buckets.overlap, 100 * buckets.possible_overlap,
                    buckets.best_bucket_bytes / (1 << 20));
}

}  // namespace

std::string_view name_of(Cause cause) noexcept {
  constexpr std::array<std::string_view, 9> names{"data",       "compute",   "processor",
                                                  "steal",      "throttled", "checkpoint",
                                                  "evaluation", "link",      "small_buckets"};
  return names[static_cast<std::size_t>(cause)];
}

std::string to_text(const RunAnalysis& analysis, int columns) {
  if (analysis.world == 0)
    return "There are no rows of kind rank, so there is nothing to analyse.\n";
  auto text =
      fmt::format("{} steps on {} rank{}, {:.2f} ms per step; times in ms per step\n",
                  analysis.steps, analysis.world, analysis.world == 1 ? "" : "s", analysis.step_ms);
  text += rank_table(analysis) + bucket_lines(analysis.buckets);
  if (analysis.communication_overhead) {
    text += fmt::format("Communication overhead: {:.1f} % of a step without Ddp (limit {:.0f} %)\n",
                        100 * *analysis.communication_overhead, 100 * kMaxCommunicationOverhead);
  }
  for (const auto& straggler : analysis.stragglers) {
    text += "Late: " + wrapped(straggler.text, "      ", columns) + "\n";
  }
  for (const auto& advice : analysis.advice) {
    text += "Advice: " +
            wrapped(fmt::format("{}. {}; expected gain {:.0f} %", advice.text, advice.action,
                                100 * advice.gain),
                    "        ", columns) +
            "\n";
  }
  if (analysis.advice.empty()) text += "Advice: none; no rank waits long for another one.\n";
  return text;
}

std::string to_json(const RunAnalysis& analysis) {
  Json json{{"world", analysis.world},
            {"steps", analysis.steps},
            {"step_ms", rounded(analysis.step_ms)},
            {"split", split_json(analysis.split_ms)}};
  auto& ranks = json["ranks"] = Json::array();
  for (const auto& rank : analysis.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"steps", rank.steps},
                     {"step_ms", rounded(rank.step_ms)},
                     {"p50_ms", rounded(rank.p50_ms)},
                     {"max_ms", rounded(rank.max_ms)},
                     {"split", split_json(rank.split_ms)},
                     {"late_ms", rounded(rank.late_ms)},
                     {"last", rounded(rank.last)},
                     {"peak_rss_bytes", rank.peak_rss_bytes}});
  }
  auto& stragglers = json["stragglers"] = Json::array();
  for (const auto& each : analysis.stragglers) {
    stragglers.push_back({{"rank", each.rank},
                          {"late_ms", rounded(each.late_ms)},
                          {"last", rounded(each.last)},
                          {"cause", name_of(each.cause)},
                          {"excess_ms", rounded(each.excess_ms)},
                          {"text", each.text}});
  }
  const auto& buckets = analysis.buckets;
  json["buckets"] = {{"count", buckets.count},
                     {"total_bytes", buckets.total_bytes},
                     {"mean_gb_per_s", rounded(buckets.mean_gb_per_s)},
                     {"slow", buckets.slow},
                     {"slowest", buckets.slowest},
                     {"overlap", rounded(buckets.overlap)},
                     {"possible_overlap", rounded(buckets.possible_overlap)},
                     {"best_bucket_bytes", buckets.best_bucket_bytes}};
  json["communication_overhead"] = analysis.communication_overhead
                                       ? Json(rounded(*analysis.communication_overhead))
                                       : Json(nullptr);
  auto& advice = json["advice"] = Json::array();
  for (const auto& each : analysis.advice) {
    advice.push_back({{"cause", name_of(each.cause)},
                      {"rank", each.rank ? Json(*each.rank) : Json(nullptr)},
                      {"gain", rounded(each.gain)},
                      {"text", each.text},
                      {"action", each.action}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
