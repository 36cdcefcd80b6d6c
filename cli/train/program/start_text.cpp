#include "cli/train/program/start_text.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/train/program/progress.h"

namespace lockstep::cli {

std::vector<std::string> start_lines(const SavedConfig& saved, Task& task,
                                     const ProcessGroup& group, const StartFacts& facts) {
  const auto& config = saved.resolved.config;
  const auto parameters = static_cast<double>(num_parameters(task.net()));
  std::vector<std::string> lines{
      fmt::format("{}: {} parameters", task.describe(), short_number(parameters))};
  if (!saved.files.remark.empty()) lines.push_back("warning: " + saved.files.remark);
  const auto validation = task.validation() ? task.validation()->size() : 0;
  lines.push_back(
      fmt::format("data: {}, {} training samples, {} validation samples; {} steps per epoch",
                  saved.files.name, task.training().size(), validation, facts.steps_per_epoch));
  const auto tokens = facts.sizes.global() * task.units_per_sample();
  lines.push_back(
      fmt::format("batch: {}{}", describe(facts.sizes),
                  trains_on_tokens(config.model) ? fmt::format(" = {} tokens", tokens) : ""));
  lines.push_back(fmt::format("lr: {}", facts.schedule));
  if (!facts.lr_reason.empty()) lines.push_back(facts.lr_reason);
  const int threads = at::get_num_threads();
  if (config.device == TrainDevice::cuda) {
    const auto device = task.device().str();
    lines.push_back(group.size() == 1
                        ? fmt::format("ranks: 1 on the GPU {}", device)
                        : fmt::format("ranks: {} on GPUs, rank 0 on {}", group.size(), device));
  } else {
    lines.push_back(fmt::format("ranks: {} on the CPU, {} thread{} per rank; gradients through {}",
                                group.size(), threads, threads == 1 ? "" : "s",
                                backend_text(group)));
  }
  const bool is_short = facts.total && *facts.total <= config.powersgd_start;
  if (config.compress == Compress::powersgd && is_short) {
    lines.push_back(
        fmt::format("warning: --compress powersgd compresses nothing: it begins after "
                    "--powersgd-start {} steps, and the run has {}",
                    config.powersgd_start, *facts.total));
  }
  if (!facts.sharding.empty()) lines.push_back("optimizer: " + facts.sharding);
  lines.push_back(
      fmt::format("run: {}{}", facts.folder,
                  facts.step > 0 ? fmt::format(", resumed at step {}", facts.step) : ""));
  return lines;
}

std::string backend_text(const ProcessGroup& group) {
  const auto backend = group.backend();
  return fmt::format("{}: {}", backend == "shm" ? "shared memory" : backend,
                     group.backend_reason());
}

}  // namespace lockstep::cli
