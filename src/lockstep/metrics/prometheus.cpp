#include "lockstep/metrics/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view name) {
  return !name.empty() && is_letter(name.front()) &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

void expect_name(std::string_view name) {
  if (is_name(name)) return;
  throw UsageError(fmt::format(
      "{} is not a name for Prometheus: use letters, digits and _, and begin with a letter",
      in_quotes(std::string(name))));
}

std::string escaped(std::string_view text, bool in_label) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\\\";
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '"' && in_label) {
      result += "\\\"";
    } else {
      result += c;
    }
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Metrics of programs have any names; milliseconds become seconds.
std::pair<std::string, double> in_base_units(std::string_view kind, std::string name,
                                             double value) {
  if (name.ends_with("_ms")) {
    name.replace(name.size() - 2, 2, "seconds");
    value /= 1000;
  }
  for (auto& c : name) {
    if (!is_letter(c) && !is_digit(c)) c = '_';
  }
  return {fmt::format("lockstep_{}_{}", kind, name), value};
}

constexpr std::streamoff kTailBytes = 256 << 10;

std::optional<MetricRow> try_row(const std::string& line) {
  const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto kind = json.value("kind", "");
  if (kind != "train" && kind != "eval") return std::nullopt;
  MetricRow row{.step = json.value("step", std::int64_t{0}),
                .kind = kind == "train" ? MetricKind::train : MetricKind::eval};
  row.time = json.value("time", 0.0);
  for (const auto& [name, value] : json.items()) {
    if (name == "kind" || name == "step" || name == "time") continue;
    if (value.is_number()) row.metrics.push_back({name, value.get<double>()});
  }
  return row;
}

}  // namespace

std::string to_prometheus(std::span<const PrometheusFamily> families) {
  std::string text;
  for (const auto& family : families) {
    expect_name(family.name);
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family.name, escaped(family.help, false),
                        family.name, family.type == PrometheusType::counter ? "counter" : "gauge");
    for (const auto& sample : family.samples) {
      text += family.name;
      for (std::size_t i = 0; i < sample.labels.size(); ++i) {
        expect_name(sample.labels[i].first);
        text += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", sample.labels[i].first,
                            escaped(sample.labels[i].second, true));
      }
      text += fmt::format("{} {}\n", sample.labels.empty() ? "" : "}", number(sample.value));
    }
  }
  return text;
}

std::vector<PrometheusFamily> prometheus_of(const MetricRow& row) {
  const std::string_view kind = row.kind == MetricKind::eval ? "eval" : "train";
  std::vector<PrometheusFamily> families{
      {.name = fmt::format("lockstep_{}_step", kind),
       .help = fmt::format("Completed steps at the last {} row of metrics.jsonl.", kind),
       .samples = {{.value = static_cast<double>(row.step)}}}};
  for (const auto& metric : row.metrics) {
    double value = 0;
    if (const auto* real = std::get_if<double>(&metric.value)) {
      value = *real;
    } else if (const auto* integer = std::get_if<std::int64_t>(&metric.value)) {
      value = static_cast<double>(*integer);
    } else {
      continue;
    }
    auto [name, in_base] = in_base_units(kind, metric.name, value);
    const auto is_same = [&](const PrometheusFamily& other) { return other.name == name; };
    if (std::ranges::any_of(families, is_same)) continue;  // a.b and a_b
    families.push_back(
        {.name = std::move(name),
         .help = fmt::format("{} of the last {} row of metrics.jsonl.", metric.name, kind),
         .samples = {{.value = in_base}}});
  }
  return families;
}

std::vector<MetricRow> last_rows(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto end = static_cast<std::streamoff>(file.tellg());
  file.seekg(std::max<std::streamoff>(end - kTailBytes, 0));
  std::map<MetricKind, MetricRow> last;
  for (std::string line; std::getline(file, line);) {  // the first may be cut: then it is no JSON
    if (auto row = try_row(line)) last[row->kind] = std::move(*row);
  }
  std::vector<MetricRow> rows;
  for (auto& [kind, row] : last) rows.push_back(std::move(row));
  return rows;
}

}  // namespace lockstep
