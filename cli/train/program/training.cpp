#include "cli/train/program/training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "cli/sibling.h"
#include "cli/train/old_spellings.h"
#include "cli/train/program/run_end.h"
#include "cli/train/program/start_text.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/autocast.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/unit.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Task> seeded_task(const SavedConfig& saved, const std::string& folder,
                                  const Seeds& seeds) {
  seeds.begin_shared("weights");
  auto task = make_task(saved, folder);
  if (saved.resolved.config.device == TrainDevice::cuda) task->move_to(at::Device(at::kCUDA, 0));
  const auto every = saved.resolved.config.recompute;
  if (every > 0) recompute_blocks(task->net(), {.every = static_cast<int>(every)});
  return task;
}

DdpOptions ddp_options(const TrainConfig& config, const BatchSizes& sizes) {
  return {.bucket_bytes = static_cast<std::size_t>(config.bucket_bytes),
          .accumulate = static_cast<int>(sizes.accumulation)};
}

LoaderOptions loader_options(const TrainConfig& config, const BatchSizes& sizes, const Task& task,
                             int rank) {
  return {.batch = sizes,
          .rank = rank,
          .order = {.seed = static_cast<std::uint64_t>(config.seed)},
          .workers = static_cast<int>(config.workers),
          .transforms = task.transforms()};
}

RunOptions run_options(const SavedConfig& saved, const StepCounts& counts, const Task& task,
                       int rank) {
  const auto& config = saved.resolved.config;
  return {.save_every = counts.save_every,
          .keep = static_cast<int>(config.keep),
          .seed = static_cast<std::uint64_t>(config.seed),
          .data_id = task.training().id(),
          .configuration = deciding_json(saved),
          .translate_configuration = noted_configuration_with_new_names,
          .log = Log({.rank = rank, .level = LogLevel::warning})};
}

// If gradients overflow at this loss scale, the model has diverged.
constexpr double kLeastLossScale = 1.0 / 65536;

std::optional<at::ScalarType> lower_type(Precision precision) {
  if (precision == Precision::bfloat16) return at::kBFloat16;
  if (precision == Precision::float16) return at::kHalf;
  return std::nullopt;
}

}  // namespace

Training::Training(const World& world, std::string folder, SavedConfig saved)
    : world_(world),
      folder_(std::move(folder)),
      saved_(std::move(saved)),
      config_(saved_.resolved.config),
      group_(world),
      seeds_(static_cast<std::uint64_t>(config_.seed), {.leaf = world.rank()}),
      task_(seeded_task(saved_, folder_, seeds_)),
      sizes_(batch_sizes_for(saved_, world.size())),
      ddp_(task_->net(), group_, ddp_options(config_, sizes_)),
      optimizer_(make_optimizer(config_, ddp_.flat())),
      loader_(task_->training(), loader_options(config_, sizes_, *task_, world.rank())),
      counts_(step_counts(
          saved_.resolved,
          {loader_.steps_per_epoch(),
           takes_tokens(config_.model) ? sizes_.global() * task_->units_per_sample() : 0})),
      peak_lr_(peak_lr_for(config_, sizes_.global())),
      schedule_(schedule_for(config_, counts_, peak_lr_.value)),
      scaler_({.enabled = config_.precision == Precision::float16}),
      run_(world, folder_, run_options(saved_, counts_, *task_, world.rank())) {
  if (config_.deterministic) deterministic_.emplace();
  group_.barrier().wait();  // all ranks measure at the same time, as they compute
  Mean speed;
  speed.add(matrix_product_speed(ddp_.flat().values(0).device(),
                                 lower_type(config_.precision).value_or(at::kFloat)));
  reduce(group_, speed);
  work_ = {.units = sizes_.global() * task_->units_per_sample(),
           .unit = task_->unit(),
           .operations_per_unit = task_->operations_per_unit(),
           .peak_operations = speed.sum,
           .steps = counts_.total};
  open_run();
}

void Training::open_run() {
  run_.track("model", task_->net());
  run_.track("optimizer", *optimizer_);
  run_.track("loader", loader_);
  run_.track("best", best_);
  if (config_.precision == Precision::float16) run_.track("scaler", scaler_);
  run_.track("clock", clock_);  // 0 unless the length is a time
  const auto resumed_at = run_.resume();
  reporter_.emplace(ReporterOptions{.rank = world_.rank(),
                                    .folder = folder_,
                                    .resumed_at = resumed_at,
                                    .tensorboard = config_.tensorboard},
                    Environment::of_process());
}

void Training::announce() {
  const auto lines =
      start_lines(saved_, *task_, group_,
                  {.folder = folder_,
                   .sizes = sizes_,
                   .steps_per_epoch = loader_.steps_per_epoch(),
                   .schedule = schedule_.describe(),
                   .lr_reason = config_.lr_scaling == LrScaling::none ? "" : peak_lr_.reason,
                   .step = run_.step()});
  for (const auto& line : lines) reporter_->say(line);
}

bool Training::run() {
  announce();
  if (is_over()) {
    if (reporter_->speaks()) reporter_->say(write_end_again(saved_, end_facts()));
    return true;
  }
  while (!is_over()) {
    step();
    StepEnd end;
    if (evaluation_due() && evaluate_now()) end.keep_as = {"best"};
    const auto begin = Clock::now();
    const bool told_to_stop = run_.end_of_step(end);
    meter_.add_saving(Clock::now() - begin);
    if (told_to_stop) {
      reporter_->say(fmt::format(
          "stopped at step {}; a checkpoint is saved. The same command resumes the run.",
          run_.step()));
      return false;
    }
  }
  finish();
  return true;
}

bool Training::gave_up() const { return config_.patience > 0 && best_.since() >= config_.patience; }

bool Training::is_over() const {
  if (gave_up()) return true;
  if (counts_.total) return run_.step() >= *counts_.total;
  return clock_.seconds >= config_.length.amount;
}

void Training::step() {
  const auto begin = Clock::now();
  StepCost cost;
  Mean loss;
  seeds_.begin_step(run_.step());
  for (bool ends_step = false; !ends_step;) {
    const auto batch = loader_.next();
    const auto mean = loss_of(batch);
    scaler_.scale(mean).backward();  // the last one of a step averages gradients over ranks
    loss.add(mean.detach(), static_cast<double>(batch.count()));
    cost.data_wait += batch.metrics.wait;
    ends_step = batch.ends_step;
  }
  update_weights();
  cost.exposed = ddp_.record().exposed;
  cost.whole = Clock::now() - begin;
  meter_.add(cost, loss);
  const auto next = run_.step() + 1;
  if (next % counts_.log_every == 0 || next == 1 || next == counts_.total) log_interval();
  if (reporter_->live_due()) {
    reporter_->show_live(live_progress(work_, meter_, state(), loss.value()));
  }
}

at::Tensor Training::loss_of(const Batch& batch) {
  const auto lower = lower_type(config_.precision);
  if (!lower) return task_->loss(batch);
  const Autocast autocast(*lower, ddp_.flat().values(0).device().type());
  return task_->loss(batch);
}

void Training::update_weights() {
  const auto lr = schedule_.at(run_.step());
  auto& flat = ddp_.flat();
  if (config_.precision == Precision::float16) {
    scaler_.unscale(flat);
  }
  norm_ = config_.max_grad_norm > 0 ? clip_grad_norm(flat, config_.max_grad_norm) : grad_norm(flat);
  // Squares are summed in double, so that the norm of finite gradients is finite.
  if (config_.precision != Precision::float16 && !std::isfinite(norm_)) refuse_non_finite();
  if (config_.precision == Precision::float16) {
    scaler_.step(*optimizer_, lr);
    scaler_.update();
    if (scaler_.current_scale() < kLeastLossScale) refuse_non_finite();
  } else {
    optimizer_->step(lr);
  }
  optimizer_->zero_grad();
}

void Training::refuse_non_finite() const {
  const auto names = ddp_.non_finite_parameters();
  throw UsageError(fmt::format(
      "the gradient of step {} is not finite on at least one rank{}: the run has diverged. Earlier "
      "checkpoints are in {}; start again with --fresh and a lower --lr, a longer --warmup or "
      "--precision fp32",
      run_.step() + 1,
      names.empty() ? ""
                    : fmt::format(" (on rank {}: {}, {} parameter{} in total)", world_.rank(),
                                  names[0], names.size(), names.size() == 1 ? "" : "s"),
      run_.checkpoints_folder()));
}

StepState Training::state() const {
  StepState state{.step = run_.step() + 1,
                  .lr = schedule_.at(run_.step()),
                  .gradient_norm = norm_,
                  .epoch = loader_.state().epoch};
  if (config_.precision == Precision::float16) state.loss_scale = scaler_.current_scale();
  if (!counts_.total) state.seconds_left = std::max(config_.length.amount - clock_.seconds, 0.0);
  return state;
}

void Training::log_interval() {
  const auto interval = meter_.take(group_);
  if (!counts_.total) clock_.seconds += interval.seconds.value();
  reporter_->write(interval_row(work_, interval, state()));
  reporter_->show_plain(interval_progress(work_, meter_, state(), interval));
}

bool Training::evaluation_due() const {
  if (task_->validation() == nullptr) return false;
  const auto next = run_.step() + 1;
  if (!counts_.total && clock_.seconds >= config_.length.amount) return true;
  return next % counts_.eval_every == 0 || next == counts_.total;
}

bool Training::evaluate_now() {
  const auto begin = Clock::now();
  const auto next = run_.step() + 1;
  // The number of samples does not change with the number of ranks.
  const auto wanted = config_.eval_batches * config_.batch * saved_.world;
  const auto each = sizes_.local * sizes_.world;
  result_ = evaluate(*task_, group_, {.sizes = sizes_, .batches = (wanted + each - 1) / each});
  evaluated_at_ = next;
  const bool is_best = best_.add(result_->loss.value(), next);
  auto row = evaluation_row(next, *result_);
  reporter_->say(evaluation_line(next, *result_, best_, config_.patience));
  if (reporter_->speaks() && config_.sample_tokens > 0) {
    const auto sample = task_->sample(config_.sample_tokens);
    if (!sample.empty()) {
      reporter_->say(quoted_text(sample, "  | "));
      row.metrics.push_back({"sample", sample});
    }
  }
  reporter_->write(row);
  meter_.add_evaluation(Clock::now() - begin);
  return is_best;
}

SummaryFacts Training::end_facts() const {
  return {.folder = folder_,
          .why = end_reason(run_.step(), gave_up(), best_.since()),
          .gave_up = gave_up(),
          .steps = run_.step()};
}

void Training::finish() {
  run_.finish();
  const auto digest = equal_digest(ddp_.flat(), group_);
  if (!reporter_->speaks()) return;
  auto facts = end_facts();
  facts.command = typed_command(Environment::of_process());
  facts.metrics = read_metrics(reporter_->metrics_path(), {.renamed = renamed_metrics()});
  if (evaluated_at_ == run_.step()) facts.validation = result_;
  facts.best_loss = best_.loss();
  facts.best_step = best_.step();
  facts.split = meter_.split();
  facts.split_steps = meter_.steps();
  facts.units_per_step = work_.units;
  facts.unit = work_.unit;
  facts.world = world_.size();
  facts.digest = digest;
  facts.failures = run_.failures();
  facts.sample = task_->sample(2 * config_.sample_tokens);
  reporter_->say(write_end(saved_, facts));
}

}  // namespace lockstep::cli
