#include "cli/train/program/evaluation.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/loader.h"

namespace lockstep::cli {

Scores evaluate(Task& task, const ProcessGroup& group, const EvaluationOptions& options) {
  const torch::NoGradGuard no_grad;
  Loader loader(*task.held_out(), evaluation_options(options.sizes, group.rank()));
  Scores scores;
  task.net().eval();
  std::int64_t done = 0;
  for (const auto& batch : loader.epoch()) {
    if (batch.count() > 0) task.score(batch, scores);
    if (++done == options.batches) break;
  }
  task.net().train();
  reduce(group, scores.loss, scores.accuracy);
  return scores;
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
        fmt::format("the saved state of the best evaluation cannot be read: {}", error.what()));
  }
}

MetricRow evaluation_row(std::int64_t step, const Scores& scores) {
  MetricRow row{.step = step, .kind = MetricKind::eval, .metrics = {{"loss", scores.loss.value()}}};
  if (const auto accuracy = scores.accuracy.try_value()) {
    row.metrics.push_back({"accuracy", *accuracy});
  }
  return row;
}

std::string evaluation_line(std::int64_t step, const Scores& scores, const Best& best,
                            std::int64_t patience) {
  auto line = fmt::format("step {}: held-out loss {:.4f}", step, scores.loss.value());
  if (const auto accuracy = scores.accuracy.try_value()) {
    line += fmt::format(", {:.2f} % right", 100 * *accuracy);
  }
  if (best.loss() && best.step() == step) line += ", the best so far";
  if (patience > 0) line += fmt::format(" ({} of {})", best.since(), patience);
  return line;
}

}  // namespace lockstep::cli
