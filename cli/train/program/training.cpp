#include "cli/train/program/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "cli/sibling.h"
#include "cli/train/program/summary.h"
#include "cli/train/run_start.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/flat/walk.h"
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
          .log = Log({.rank = rank, .level = LogLevel::warning})};
}

// A loss scale that has been halved down to here is not what gradients suffer from.
constexpr double kLeastLossScale = 1.0 / 65536;

std::optional<at::ScalarType> lower_type(Precision precision) {
  if (precision == Precision::bfloat16) return at::kBFloat16;
  if (precision == Precision::float16) return at::kHalf;
  return std::nullopt;
}

}  // namespace

std::string TrainClock::state_json() const { return nlohmann::json{{"seconds", seconds}}.dump(); }

void TrainClock::load_state_json(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_object() || !value.contains("seconds") || !value["seconds"].is_number()) {
    throw UsageError("the saved time of training cannot be read");
  }
  seconds = value["seconds"];
}

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
      rate_(rate_for(config_, sizes_.global())),
      schedule_(schedule_for(config_, counts_, rate_.highest)),
      scaler_({.enabled = config_.precision == Precision::float16}),
      run_(world, folder_, run_options(saved_, counts_, *task_, world.rank())) {
  if (config_.deterministic) deterministic_.emplace();
  group_.barrier().wait();  // so that all ranks measure at once, as they compute
  Mean rate;
  rate.add(matrix_product_rate());
  reduce(group_, rate);
  peak_ = rate.sum;
  open_run();
}

void Training::open_run() {
  run_.track("model", task_->net());
  run_.track("optimizer", *optimizer_);
  run_.track("loader", loader_);
  run_.track("best", best_);
  if (config_.precision == Precision::float16) run_.track("scaler", scaler_);
  run_.track("clock", clock_);  // stays 0 where the length is no time
  const auto resumed_at = run_.resume();
  reporter_.emplace(ReporterOptions{.rank = world_.rank(),
                                    .folder = folder_,
                                    .resumed_at = resumed_at,
                                    .tensorboard = config_.tensorboard},
                    Environment::of_process());
}

void Training::announce() {
  const auto parameters = static_cast<double>(num_parameters(task_->net()));
  reporter_->say(fmt::format("{}: {} parameters", task_->describe(), short_number(parameters)));
  if (!saved_.files.remark.empty()) reporter_->say("warning: " + saved_.files.remark);
  const auto held_out = task_->held_out() ? task_->held_out()->size() : 0;
  reporter_->say(fmt::format("data: {}, {} samples and {} held out; {} steps an epoch",
                             saved_.files.name, task_->training().size(), held_out,
                             loader_.steps_per_epoch()));
  reporter_->say(
      fmt::format("batch: {}{}", describe(sizes_),
                  takes_tokens(config_.model)
                      ? fmt::format(" = {} tokens", sizes_.global() * task_->units_per_sample())
                      : ""));
  reporter_->say(fmt::format("optimizer: {}", schedule_.describe()));
  if (config_.rate_scaling != RateScaling::none) reporter_->say(rate_.reason);
  const int threads = at::get_num_threads();
  reporter_->say(fmt::format(
      "ranks: {} on the CPU, {} thread{} each; gradients through shared memory: all ranks are on "
      "one host",
      world_.size(), threads, threads == 1 ? "" : "s"));
  reporter_->say(fmt::format("run: {}{}", folder_,
                             run_.step() > 0 ? fmt::format(", from step {} on", run_.step()) : ""));
}

bool Training::run() {
  announce();
  if (is_over()) {
    tell_that_it_is_over();
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
          "stopped at step {}, which is saved. The same command goes on from there.", run_.step()));
      return false;
    }
  }
  finish();
  return true;
}

// A run that was finished before, and is asked for nothing more: its summary stays.
void Training::tell_that_it_is_over() {
  if (!reporter_->speaks()) return;
  const auto why = fmt::format("Done: {} steps.", run_.step());
  write_whole(folder_ + "/finished.json", to_json(finished(why)));
  reporter_->say(
      fmt::format("Step {} is done already: nothing is left to do. Ask for more with "
                  "--for{}.",
                  run_.step(), gave_up() ? " and --patience" : ""));
}

bool Training::gave_up() const { return config_.patience > 0 && best_.since() >= config_.patience; }

Finished Training::finished(const std::string& why) const {
  return {
      .length = to_string(config_.length), .steps = run_.step(), .why = why, .gave_up = gave_up()};
}

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
    scaler_.scale(mean).backward();  // averaged over ranks when the step's last one returns
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
  if (reporter_->live_due()) reporter_->show_live(progress(loss.value()));
}

at::Tensor Training::loss_of(const Batch& batch) {
  const auto lower = lower_type(config_.precision);
  if (!lower) return task_->loss(batch);
  const Autocast autocast(*lower);
  return task_->loss(batch);
}

void Training::update_weights() {
  const auto rate = schedule_.at(run_.step());
  auto& flat = ddp_.flat();
  if (config_.precision == Precision::float16) {
    scaler_.unscale(flat);
  } else if (ddp_.non_finite()) {
    refuse_non_finite();
  }
  norm_ = config_.clip > 0 ? clip_grad_norm(flat, config_.clip) : grad_norm(flat);
  if (config_.precision == Precision::float16) {
    scaler_.step(*optimizer_, rate);
    scaler_.update();
    if (scaler_.current_scale() < kLeastLossScale) refuse_non_finite();
  } else {
    optimizer_->step(rate);
  }
  optimizer_->zero_grad();
}

void Training::refuse_non_finite() const {
  const auto names = ddp_.non_finite_parameters();
  throw UsageError(fmt::format(
      "the gradient of step {} is not finite on some rank{}: the run has diverged. Its checkpoints "
      "before that stand in {}; begin anew with --fresh and a lower --rate, a longer --warmup or "
      "--precision fp32",
      run_.step() + 1,
      names.empty() ? "" : fmt::format(" (here {}, {} in all)", names[0], names.size()),
      run_.checkpoints_folder()));
}

void Training::log_interval() {
  const auto interval = meter_.take(group_);
  if (!counts_.total) clock_.seconds += interval.seconds.value();
  const auto units =
      static_cast<double>(interval.steps * sizes_.global() * task_->units_per_sample());
  const auto per_second = units / interval.seconds.value();
  const auto operations = per_second * task_->operations_per_unit();
  MetricRow row{.step = run_.step() + 1, .kind = MetricKind::train};
  row.metrics = {{"loss", interval.loss.value()},
                 {"rate", schedule_.at(run_.step())},
                 {"gradient_norm", norm_},
                 {task_->unit() == "tok" ? "tokens_per_second" : "samples_per_second", per_second},
                 {"step_ms", 1e3 * interval.seconds.value() / static_cast<double>(interval.steps)},
                 {"data_wait", interval.data_wait.value()},
                 {"data_wait_worst", interval.worst_data_wait.value()},
                 {"exposed_communication", interval.exposed.value()},
                 {"epoch", loader_.state().epoch}};
  if (operations > 0) {
    row.metrics.push_back({"gflops", operations / 1e9});
    row.metrics.push_back({"mfu", operations / peak_});
  }
  if (config_.precision == Precision::float16) {
    row.metrics.push_back({"loss_scale", scaler_.current_scale()});
  }
  reporter_->write(row);
  auto line = progress(interval.loss.value());
  line.data_wait = interval.data_wait.value();
  line.exposed = interval.exposed.value();
  line.units_per_second = per_second;
  reporter_->show_plain(line);
}

Progress Training::progress(double loss) const {
  const auto step_time = meter_.mean_step();
  const auto& split = meter_.split();
  Progress result{
      .step = run_.step() + 1,
      .steps = counts_.total,
      .loss = loss,
      .rate = schedule_.at(run_.step()),
      .units_per_second =
          static_cast<double>(sizes_.global() * task_->units_per_sample()) / step_time.count(),
      .unit = task_->unit(),
      .data_wait = split.data_wait / split.steps,
      .exposed = split.exposed / split.steps};
  // Evaluations and saves take their time too: they are in the mean over all steps so far.
  const auto each = split.whole().count() / static_cast<double>(meter_.steps());
  const double left = counts_.total ? static_cast<double>(*counts_.total - run_.step() - 1) * each
                                    : std::max(config_.length.amount - clock_.seconds, 0.0);
  result.left = std::chrono::seconds(std::llround(left));
  return result;
}

bool Training::evaluation_due() const {
  if (task_->held_out() == nullptr) return false;
  const auto next = run_.step() + 1;
  if (!counts_.total && clock_.seconds >= config_.length.amount) return true;
  return next % counts_.evaluate_every == 0 || next == counts_.total;
}

bool Training::evaluate_now() {
  const auto begin = Clock::now();
  const auto next = run_.step() + 1;
  // As many samples as when the run was begun, whatever the number of ranks is now.
  const auto wanted = config_.evaluate_batches * config_.batch * saved_.world;
  const auto each = sizes_.local * sizes_.world;
  scores_ = evaluate(*task_, group_, {.sizes = sizes_, .batches = (wanted + each - 1) / each});
  scored_at_ = next;
  const double loss = scores_->loss.value();
  const bool is_best = best_.add(loss, next);
  MetricRow row{.step = next, .kind = MetricKind::eval, .metrics = {{"loss", loss}}};
  auto line = fmt::format("step {}: held-out loss {:.4f}", next, loss);
  if (const auto accuracy = scores_->accuracy.try_value()) {
    row.metrics.push_back({"accuracy", *accuracy});
    line += fmt::format(", {:.2f} % right", 100 * *accuracy);
  }
  if (is_best) line += ", the best so far";
  if (config_.patience > 0) line += fmt::format(" ({} of {})", best_.since(), config_.patience);
  reporter_->say(line);
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

// All ranks' parameters, bit for bit.
std::uint64_t Training::equal_digest() {
  std::uint64_t own = 0;
  for (int segment = 0; segment < ddp_.flat().num_segments(); ++segment) {
    own = own * 31 + digest_of(ddp_.flat().values(segment));
  }
  const auto all = gather_values(group_, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw PeerError(static_cast<int>(rank),
                    fmt::format("rank {}'s parameters are not those of rank 0: replicas must be "
                                "equal after every step",
                                rank));
  }
  return own;
}

void Training::finish() {
  run_.finish();
  const auto digest = equal_digest();
  const auto why = gave_up() ? fmt::format("No better evaluation in {}: ended at step {}.",
                                           best_.since(), run_.step())
                             : fmt::format("Done: {} steps.", run_.step());
  if (!reporter_->speaks()) return;
  const auto summary =
      summary_text(saved_, {.command = typed_command(Environment::of_process()),
                            .folder = folder_,
                            .why = why,
                            .gave_up = gave_up(),
                            .steps = run_.step(),
                            .metrics = read_metrics(reporter_->metrics_path()),
                            .scores = scored_at_ == run_.step() ? scores_ : std::nullopt,
                            .best_loss = best_.loss(),
                            .best_step = best_.step(),
                            .split = meter_.split(),
                            .split_steps = meter_.steps(),
                            .units_per_step = sizes_.global() * task_->units_per_sample(),
                            .unit = task_->unit(),
                            .world = world_.size(),
                            .digest = digest,
                            .failures = run_.failures(),
                            .sample = task_->sample(2 * config_.sample_tokens)});
  write_whole(folder_ + "/summary.txt", summary);
  write_whole(folder_ + "/finished.json", to_json(finished(why)));
  reporter_->say(summary);
}

}  // namespace lockstep::cli
