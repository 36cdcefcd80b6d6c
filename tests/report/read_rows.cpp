// read_rows METRICS_JSONL: prints the rows that read_metrics() returns, one JSON object per line,
// for reader_test.py. Exits with 2 if read_metrics() refuses the file.
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/metrics/metrics_log.h"

namespace {

const char* name_of(lockstep::MetricKind kind) {
  switch (kind) {
    case lockstep::MetricKind::train:
      return "train";
    case lockstep::MetricKind::eval:
      return "eval";
    case lockstep::MetricKind::rank:
      return "rank";
    case lockstep::MetricKind::bucket:
      return "bucket";
    case lockstep::MetricKind::event:
      return "event";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  try {
    for (const auto& row : lockstep::read_metrics(argv[1])) {
      nlohmann::ordered_json json{
          {"kind", name_of(row.kind)}, {"step", row.step}, {"time", row.time}};
      for (const auto& metric : row.metrics) {
        std::visit([&](const auto& value) { json[metric.name] = value; }, metric.value);
      }
      std::cout << json.dump() << '\n';
    }
  } catch (const lockstep::UsageError& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
