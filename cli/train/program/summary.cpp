#include "cli/train/program/summary.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/train/program/progress.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/report/text_plot.h"

namespace lockstep::cli {
namespace {

PlotCurve curve_of(const std::vector<MetricRow>& rows, MetricKind kind, char mark) {
  PlotCurve curve{.mark = mark};
  for (const auto& row : rows) {
    if (row.kind != kind) continue;
    for (const auto& metric : row.metrics) {
      const auto* loss = metric.name == "loss" ? std::get_if<double>(&metric.value) : nullptr;
      if (loss) curve.points.push_back({static_cast<double>(row.step), *loss});
    }
  }
  return curve;
}

// "tokens" for the unit "tok".
std::string_view units_in_words(std::string_view unit) {
  return unit == "tok" ? "tokens" : unit == "img" ? "images" : "rows";
}

std::string validation_text(const SummaryFacts& facts) {
  if (!facts.validation || !facts.validation->loss.try_value()) return {};
  auto text = fmt::format("  validation loss {:.4f} over {} {}", facts.validation->loss.value(),
                          static_cast<std::int64_t>(facts.validation->loss.count),
                          units_in_words(facts.unit));
  if (const auto accuracy = facts.validation->accuracy.try_value()) {
    text += fmt::format(", accuracy {:.2f} %", 100 * *accuracy);
  }
  if (facts.best_loss) {
    text += facts.best_step == facts.steps
                ? ", best so far"
                : fmt::format("; best {:.4f} at step {}", *facts.best_loss, facts.best_step);
  }
  return text + "\n";
}

std::string split_text(const SummaryFacts& facts) {
  const auto& split = facts.split;
  const auto percent = [&](Seconds part) {
    return split.whole().count() > 0 ? 100 * (part / split.whole()) : 0;
  };
  return fmt::format(
      "  time            {}: compute {:.1f} %, exposed communication {:.1f} %, data wait {:.1f} %, "
      "evaluation {:.1f} %, checkpoints {:.1f} %\n",
      clock_text(std::chrono::seconds(std::llround(split.whole().count()))),
      percent(split.compute()), percent(split.exposed), percent(split.data_wait),
      percent(split.evaluation), percent(split.saving));
}

std::string next_commands(const SavedConfig& saved, const SummaryFacts& facts) {
  const auto& config = saved.resolved.config;
  const auto longer = value_text({2 * config.length.amount, config.length.unit});
  std::string text;
  if (config.model == ModelKind::gpt) {
    text += fmt::format("  {} generate --run {} --prompt \"…\"\n", facts.command, facts.folder);
  }
  const auto patience =
      facts.gave_up ? fmt::format(" --patience {}", 2 * config.patience) : std::string();
  text += fmt::format("  {} train {} --run {} {} {}{}\n", facts.command, name_of(config.model),
                      facts.folder, length_option(config.length.unit), longer, patience);
  text += fmt::format("  {} ckpt export {} -o model.safetensors\n", facts.command, facts.folder);
  return text;
}

}  // namespace

std::string summary_text(const SavedConfig& saved, const SummaryFacts& facts) {
  const auto plot = text_plot({curve_of(facts.metrics, MetricKind::train, '.'),
                               curve_of(facts.metrics, MetricKind::eval, 'o')});
  auto text = fmt::format("\n{}\n", facts.why);
  if (!plot.empty()) text += fmt::format("\nloss ('.' training, 'o' validation)\n{}\n", plot);
  text += validation_text(facts);
  if (facts.split_steps > 0) {
    const double seconds = facts.split.steps.count();
    const auto units = static_cast<double>(facts.split_steps * facts.units_per_step);
    text += fmt::format("  throughput      {} {} per second on {} rank{}, {:.1f} ms per step\n",
                        short_number(units / seconds), units_in_words(facts.unit), facts.world,
                        facts.world == 1 ? "" : "s",
                        1e3 * seconds / static_cast<double>(facts.split_steps));
    text += split_text(facts);
  }
  text += fmt::format("  replicas        bit-identical on {} rank{}, digest {:016x}\n", facts.world,
                      facts.world == 1 ? "" : "s", facts.digest);
  if (facts.failures > 0) {
    text += fmt::format("  failures        {}; the run resumed from a checkpoint each time\n",
                        facts.failures);
  }
  for (const auto& advice : facts.advice) text += fmt::format("  advice          {}\n", advice);
  text += fmt::format("  checkpoints     {}/checkpoints\n", facts.folder);
  text += fmt::format("  metrics         {0}/metrics.jsonl, metrics.csv{1}\n", facts.folder,
                      saved.resolved.config.tensorboard ? ", tensorboard/" : "");
  text += fmt::format("  report          {}/report.html\n", facts.folder);
  if (!facts.sample.empty()) {
    text += fmt::format("\nSample text:\n{}\n", quoted_text(facts.sample, "  | "));
  }
  return text + "\nNext:\n" + next_commands(saved, facts);
}

std::string quoted_text(std::string_view text, std::string_view indent) {
  std::string result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (!result.empty()) result += '\n';
    result += fmt::format("{}{}", indent, printable(text.substr(begin, end - begin), false));
    begin = end + 1;
  }
  return result;
}

}  // namespace lockstep::cli
