// The names of the kinds of lines in metrics.jsonl.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "lockstep/metrics/metrics_log.h"

namespace lockstep {

inline constexpr std::string_view kStartKind = "start";

inline constexpr std::array<std::pair<MetricKind, std::string_view>, 5> kMetricKinds{{
    {MetricKind::train, "train"},
    {MetricKind::eval, "eval"},
    {MetricKind::event, "event"},
    {MetricKind::rank, "rank"},
    {MetricKind::bucket, "bucket"},
}};

constexpr std::string_view kind_name(MetricKind kind) {
  return kMetricKinds[static_cast<std::size_t>(kind)].second;
}

}  // namespace lockstep
