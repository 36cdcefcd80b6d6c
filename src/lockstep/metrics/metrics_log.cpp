#include "lockstep/metrics/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"
#include "lockstep/metrics/metrics_kind_internal.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Seconds since 1970, to the millisecond.
double now() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return static_cast<double>(count) / 1e3;
}

std::string as_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void check_names(const MetricRow& row) {
  const auto is_allowed = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
           std::string_view("_.-/").find(letter) != std::string_view::npos;
  };
  std::set<std::string_view> seen{"kind", "step", "time"};
  for (const auto& metric : row.metrics) {
    if (metric.name.empty() || !std::ranges::all_of(metric.name, is_allowed)) {
      throw UsageError(
          fmt::format("{} is not a valid name of a metric: use letters, digits, _ . - and /.",
                      in_quotes(metric.name)));
    }
    if (!seen.insert(metric.name).second) {
      throw UsageError(
          fmt::format("The name {} is used twice or reserved in the row of step {}: choose another "
                      "name.",
                      metric.name, row.step));
    }
  }
}

std::optional<double> try_number(const MetricValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

// Whether rows of `kind` are in the tables and in TensorBoard.
bool is_measured(MetricKind kind) { return kind == MetricKind::train || kind == MetricKind::eval; }

// Removes the bytes after the last line end: a line that was being written when the program died.
void drop_torn_line(const FileDescriptor& file, const std::string& path) {
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0)
    throw SystemError("cannot get the size of " + path, errno);
  std::array<char, 4096> chunk{};
  auto end = facts.st_size;
  while (end > 0) {
    const auto begin = std::max<off_t>(0, end - static_cast<off_t>(chunk.size()));
    const auto wanted = static_cast<std::size_t>(end - begin);
    const auto got = ::pread(file.number(), chunk.data(), wanted, begin);
    if (got != static_cast<ssize_t>(wanted)) throw SystemError("cannot read " + path, errno);
    const auto last = std::string_view(chunk.data(), wanted).rfind('\n');
    end = last == std::string_view::npos ? begin : begin + static_cast<off_t>(last) + 1;
    if (last != std::string_view::npos) break;
  }
  if (end != facts.st_size && ::ftruncate(file.number(), end) != 0) {
    throw SystemError("cannot truncate " + path, errno);
  }
}

void make_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw SystemError(fmt::format("cannot create the folder {}", folder), failure.value());
}

}  // namespace

const MetricValue* MetricRow::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? nullptr : &found->value;
}

std::optional<double> MetricRow::number(std::string_view name) const noexcept {
  const auto* value = find(name);
  return value == nullptr ? std::nullopt : try_number(*value);
}

std::string MetricRow::text(std::string_view name) const {
  const auto* value = find(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string() : *text;
}

MetricsLog::MetricsLog(const std::string& folder, const MetricsLogOptions& options)
    : path_(folder + "/metrics.jsonl") {
  make_folder(folder);
  file_ = FileDescriptor::open(path_, O_RDWR | O_CREAT | O_APPEND);
  drop_torn_line(file_, path_);
  if (options.csv) {
    const auto last_step = options.after.value_or(-1);
    const CsvOptions table{.last_step = last_step, .renamed = options.renamed};
    tables_.try_emplace(MetricKind::train, folder + "/metrics.csv", table);
    tables_.try_emplace(MetricKind::eval, folder + "/metrics_eval.csv", table);
  }
  if (options.tensorboard) {
    tensorboard_.emplace(folder + "/tensorboard",
                         TensorBoardOptions{.first_step = options.after.value_or(-1) + 1});
  }
  Json start{{"kind", kStartKind}, {"format", "lockstep-metrics"}, {"version", 1}};
  start["time"] = now();
  start["after"] = options.after ? Json(*options.after) : Json(nullptr);
  write_line(as_line(start));
}

void MetricsLog::write(const MetricRow& row) {
  check_names(row);
  const auto kind = kind_name(row.kind);
  Json json{{"kind", kind}, {"step", row.step}, {"time", now()}};
  std::vector<CsvWriter::Cell> cells;
  for (const auto& [name, value] : row.metrics) {
    std::visit([&json, &name = name](const auto& held) { json[name] = held; }, value);
    if (const auto number = try_number(value)) cells.emplace_back(name, *number);
  }
  write_line(as_line(json));
  if (const auto table = tables_.find(row.kind); table != tables_.end()) {
    table->second.row(row.step, cells);
  }
  if (!tensorboard_ || !is_measured(row.kind)) return;
  for (const auto& [name, value] : row.metrics) {
    const auto tag = fmt::format("{}/{}", kind, name);
    if (const auto number = try_number(value)) {
      tensorboard_->scalar(tag, *number, row.step);
    } else {
      tensorboard_->text(tag, std::get<std::string>(value), row.step);
    }
  }
}

void MetricsLog::write_line(const std::string& line) {
  write_all(file_.number(), std::as_bytes(std::span(line)), path_);
}

}  // namespace lockstep
