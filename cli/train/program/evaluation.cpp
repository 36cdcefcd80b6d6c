#include "cli/train/program/evaluation.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/loader.h"

namespace lockstep::cli {

EvalResult evaluate(Task& task, const ProcessGroup& group, const EvaluationOptions& options) {
  const torch::NoGradGuard no_grad;
  auto reading = evaluation_options(options.sizes, group.rank());
  reading.transforms = task.checks();
  reading.device = task.device();
  Loader loader(*task.validation(), std::move(reading));
  EvalResult result;
  task.net().eval();
  std::int64_t done = 0;
  for (const auto& batch : loader.epoch()) {
    if (batch.count() > 0) task.evaluate(batch, result);
    if (++done == options.batches) break;
  }
  task.net().train();
  reduce(group, result.loss, result.accuracy);
  return result;
}

bool Best::add(double loss, std::int64_t step) {
  if (!std::isfinite(loss) || (loss_ && !(loss < *loss_))) {
    ++since_;
    return false;
  }
  loss_ = loss;
  step_ = step;
  since_ = 0;
  return true;
}

std::string Best::state_json() const {
  nlohmann::ordered_json json{{"loss", nullptr}, {"step", step_}, {"since", since_}};
  if (loss_) json["loss"] = *loss_;
  return json.dump();
}

void Best::load_state_json(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    loss_.reset();
    if (!json.at("loss").is_null()) loss_ = json.at("loss").get<double>();
    step_ = json.at("step");
    since_ = json.at("since");
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(
        fmt::format("the checkpoint has no valid best evaluation (part best): {}", error.what()));
  }
}

MetricRow evaluation_row(std::int64_t step, const EvalResult& result) {
  MetricRow row{.step = step, .kind = MetricKind::eval, .metrics = {{"loss", result.loss.value()}}};
  if (const auto accuracy = result.accuracy.try_value()) {
    row.metrics.push_back({"accuracy", *accuracy});
  }
  return row;
}

std::string evaluation_line(std::int64_t step, const EvalResult& result, const Best& best,
                            std::int64_t patience) {
  auto line = fmt::format("step {}: validation loss {:.4f}", step, result.loss.value());
  if (const auto accuracy = result.accuracy.try_value()) {
    line += fmt::format(", accuracy {:.2f} %", 100 * *accuracy);
  }
  if (best.loss() && best.step() == step) line += ", best so far";
  if (patience > 0) line += fmt::format(" ({} of {})", best.since(), patience);
  return line;
}

}  // namespace lockstep::cli
