#include "cli/train/program/reporter.h"

#include <fmt/format.h>

#include <iostream>

#include "cli/report/environment_record.h"
#include "cli/train/old_spellings.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/launch/live_line.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};
constexpr std::chrono::seconds kPlainInterval{5};
// Evaluations are at unknown intervals; a browser looks this often.
constexpr std::chrono::seconds kReload{30};

// A run does not depend on its page.
void try_write(PageWriter& page, std::optional<std::chrono::seconds> reload) noexcept {
  try {
    page.write(reload);
  } catch (const std::exception&) {
  }
}

}  // namespace

Reporter::Reporter(const ReporterOptions& options, const Environment& environment) {
  if (options.rank != 0) return;
  columns_ = live_columns(environment);
  const auto after = options.resumed_at > 0 ? std::optional(options.resumed_at) : std::nullopt;
  log_.emplace(options.folder, MetricsLogOptions{.after = after,
                                                 .csv = true,
                                                 .tensorboard = options.tensorboard,
                                                 .renamed = renamed_metrics()});
  if (environment.find("LOCKSTEP_JOB")) return;
  const EnvironmentFacts facts{.command = {"lockstep-train", options.folder}, .data = options.data};
  write_whole(options.folder + "/environment.json",
              environment_json(facts, describe_machine(environment), environment));
  page_.emplace(options.folder);
}

Reporter::~Reporter() {
  if (page_) try_write(*page_, std::nullopt);
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
  if (page_ && row.kind == MetricKind::eval) try_write(*page_, kReload);
}

}  // namespace lockstep::cli
