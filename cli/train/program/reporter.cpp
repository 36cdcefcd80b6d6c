#include "cli/train/program/reporter.h"

#include <fmt/format.h>

#include <iostream>

#include "cli/train/old_spellings.h"
#include "lockstep/launch/live_line.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};
constexpr std::chrono::seconds kPlainInterval{5};

}  // namespace

Reporter::Reporter(const ReporterOptions& options, const Environment& environment) {
  if (options.rank != 0) return;
  columns_ = live_columns(environment);
  const auto after = options.resumed_at > 0 ? std::optional(options.resumed_at) : std::nullopt;
  log_.emplace(options.folder, MetricsLogOptions{.after = after,
                                                 .csv = true,
                                                 .tensorboard = options.tensorboard,
                                                 .renamed = renamed_metrics()});
}

void Reporter::say(std::string_view text) const {
  if (speaks()) std::cout << text << '\n' << std::flush;
}

bool Reporter::live_due() const {
  return speaks() && columns_ && std::chrono::steady_clock::now() - live_at_ >= kLiveInterval;
}

void Reporter::show_live(const Progress& progress) {
  std::cout << live_line(progress_line(progress, *columns_ - 1)) << std::flush;
  live_at_ = std::chrono::steady_clock::now();
}

void Reporter::show_plain(const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (!speaks() || columns_ || now - plain_at_ < kPlainInterval) return;
  say(progress_line(progress));
  plain_at_ = now;
}

void Reporter::write(const MetricRow& row) {
  if (log_) log_->write(row);
}

}  // namespace lockstep::cli
