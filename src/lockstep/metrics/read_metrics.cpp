#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"
#include "lockstep/metrics/metrics_kind_internal.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// "line 3 of runs/mine/metrics.jsonl"
struct Line {
  const std::string& path;
  std::int64_t number = 0;
  const std::string& text;

  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(fmt::format("Line {} of {} {}: {}. Is the file the metrics.jsonl of a run?",
                                 number, path, why, in_quotes(text)));
  }
};

MetricValue value_of(const Json& json, const std::string& name, const Line& line) {
  if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  line.refuse(
      fmt::format("has a value for {} that is neither a number nor a text", in_quotes(name)));
}

std::int64_t integer(const Json& json, const char* field, const Line& line) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number_integer()) {
    line.refuse(fmt::format("has no integer called {}", field));
  }
  return found->get<std::int64_t>();
}

MetricRow row_of(const Json& json, MetricKind kind, const Line& line,
                 const RenamedMetrics& renamed) {
  MetricRow row{.step = integer(json, "step", line), .kind = kind};
  if (const auto time = json.find("time"); time != json.end() && time->is_number()) {
    row.time = time->get<double>();
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "kind" || name == "step" || name == "time") continue;
    const auto new_name = renamed.find(name);
    row.metrics.push_back(
        {new_name == renamed.end() ? name : new_name->second, value_of(value, name, line)});
  }
  return row;
}

void add(const Line& line, const RenamedMetrics& renamed, std::vector<MetricRow>& rows) {
  const auto json = Json::parse(line.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) line.refuse("is not a JSON object");
  const auto kind = json.value("kind", Json()).is_string() ? json["kind"].get<std::string>() : "";
  if (kind == kStartKind) {
    if (!json.contains("after"))
      line.refuse("has no field after: the step that the run resumes after");
    const auto after = json["after"].is_null() ? -1 : integer(json, "after", line);
    // What happened is not repeated: events stay.
    std::erase_if(rows, [&](const MetricRow& row) {
      return row.step > after && row.kind != MetricKind::event;
    });
    return;
  }
  const auto known = std::ranges::find(kMetricKinds, std::string_view(kind),
                                       &std::pair<MetricKind, std::string_view>::second);
  if (known == kMetricKinds.end()) line.refuse("has an unknown kind");
  rows.push_back(row_of(json, known->first, line, renamed));
}

}  // namespace

std::vector<MetricRow> read_metrics(const std::string& path, const ReadMetricsOptions& options) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw SystemError("cannot open " + path, errno);
  std::vector<MetricRow> rows;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (file.eof()) break;  // no line end: truncated, or still being written
    add({path, number, text}, options.renamed, rows);
  }
  if (file.bad()) throw SystemError("cannot read " + path, errno);
  return rows;
}

}  // namespace lockstep
