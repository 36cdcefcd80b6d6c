// What happens before the first step: the parts of a run are made, a checkpoint is resumed.
#include <fmt/format.h>

#include <utility>

#include "cli/train/old_spellings.h"
#include "cli/train/program/start_text.h"
#include "cli/train/program/training.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/device_of.h"
#include "lockstep/rendezvous/launcher_environment.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/autocast.h"
#include "lockstep/train/unit.h"

namespace lockstep::cli {
namespace {

at::Device device_for(const World& world, const TrainConfig& config) {
  if (config.device != TrainDevice::cuda) return at::kCPU;
  const auto device = device_of(world, {.share = config.allow_shared_gpu});
  if (device.is_cuda()) return device;
  throw UsageError(
      "--device cuda, but LibTorch can use no GPU here: run nvidia-smi, and `lockstep version` for "
      "the CUDA of this build, or give --device cpu");
}

std::unique_ptr<Task> seeded_task(const SavedConfig& saved, const std::string& folder,
                                  const Seeds& seeds, at::Device device) {
  seeds.begin_shared("weights");
  auto task = make_task(saved, folder);
  task->move_to(device);
  const auto every = saved.resolved.config.recompute;
  if (every > 0) recompute_blocks(task->net(), {.every = static_cast<int>(every)});
  return task;
}

DdpOptions ddp_options(const TrainConfig& config, const BatchSizes& sizes,
                       const ShardDecision& sharding) {
  return {.bucket_bytes = static_cast<std::size_t>(config.bucket_bytes),
          .normalize = config.tail == TailKind::uneven ? Normalize::by_count : Normalize::by_rank,
          .accumulate = static_cast<int>(sizes.accumulation),
          .shard = sharding.shard,
          .copies = sharding.copies,
          .sync_batch_norm = config.sync_batch_norm};
}

Tail tail_of(TailKind kind) {
  if (kind == TailKind::uneven) return Tail::uneven;
  return kind == TailKind::pad ? Tail::pad : Tail::drop;
}

LoaderOptions loader_options(const TrainConfig& config, const BatchSizes& sizes, const Task& task,
                             int rank) {
  auto transforms = task.transforms();
  for (auto& check : task.checks()) transforms.push_back(std::move(check));
  return {.batch = sizes,
          .rank = rank,
          .order = {.seed = static_cast<std::uint64_t>(config.seed)},
          .tail = tail_of(config.tail),
          .workers = static_cast<int>(config.workers),
          .transforms = std::move(transforms),
          .device = task.device()};
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

}  // namespace

Training::Training(const World& world, std::string folder, SavedConfig saved)
    : world_(world),
      folder_(std::move(folder)),
      saved_(std::move(saved)),
      config_(saved_.resolved.config),
      device_(device_for(world, config_)),
      group_(world),
      seeds_(static_cast<std::uint64_t>(config_.seed), {.leaf = world.rank()}),
      task_(seeded_task(saved_, folder_, seeds_, device_)),
      sizes_(batch_sizes_for(saved_, world.size())),
      sharding_(choose_shard({.shard = config_.shard,
                              .copies = config_.copies,
                              .is_on_cpu = device_.is_cpu(),
                              .cuda_graph = config_.cuda_graph,
                              .num_ranks = world.size(),
                              .num_hosts = world.num_hosts()})),
      ddp_(task_->net(), group_, ddp_options(config_, sizes_, sharding_)),
      compression_(config_),
      optimizer_(make_optimizer(config_, ddp_.flat())),
      loader_(task_->training(), loader_options(config_, sizes_, *task_, world.rank())),
      counts_(step_counts(
          saved_.resolved,
          {loader_.steps_per_epoch(),
           trains_on_tokens(config_.model) ? sizes_.global() * task_->units_per_sample() : 0})),
      peak_lr_(peak_lr_for(config_, sizes_.global())),
      schedule_(schedule_for(config_, counts_, peak_lr_.value)),
      scaler_({.enabled = config_.precision == Precision::float16}),
      run_(world, folder_, run_options(saved_, counts_, *task_, world.rank())) {
  if (const auto hook = compression_.hook()) ddp_.set_hook(*hook);
  group_.barrier().wait();  // all ranks measure at the same time, as they compute
  Mean speed;
  speed.add(matrix_product_speed(device_, autocast_type(config_.precision).value_or(at::kFloat)));
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
  compression_.track(run_);
  if (config_.precision == Precision::float16) run_.track("scaler", scaler_);
  run_.track("clock", clock_);  // 0 unless the length is a time
  const auto resumed_at = run_.resume();
  reporter_.emplace(ReporterOptions{.rank = world_.rank(),
                                    .folder = folder_,
                                    .resumed_at = resumed_at,
                                    .tensorboard = config_.tensorboard,
                                    .data = data_paths(folder_, saved_.files)},
                    Environment::of_process());
  checked_until_ = resumed_at;
  if (config_.cuda_graph) {
    expect_capturable(config_, {.is_on_cpu = device_.is_cpu(),
                                .num_ranks = world_.size(),
                                .backend = group_.backend(device_),
                                .shard = sharding_.shard});
    graph_.emplace(
        [this](const std::vector<at::Tensor>& tensors) { return captured_step(tensors); },
        CudaGraphStepOptions{.groups = {group_}});
  }
  open_rank_log(resumed_at);
}

void Training::open_rank_log(std::int64_t resumed_at) {
  const auto device = ddp_.flat().values(0).device();
  const RunFacts facts{.workers = static_cast<int>(config_.workers),
                       .save_every = static_cast<double>(counts_.save_every),
                       .bucket_bytes = static_cast<double>(config_.bucket_bytes),
                       .backend = group_.backend()};
  rank_log_.emplace(
      world_, group_, *reporter_,
      RankLogOptions{.facts = facts,
                     .gpu = device.is_cuda() ? std::optional<int>(device.index()) : std::nullopt});
  timer_.emplace(StepTimerOptions{.page = &world_.page()});
  const auto round = static_cast<std::int64_t>(find_placement(Environment::of_process()).round);
  rank_log_->event(resumed_at, "start",
                   {{"world", std::int64_t{world_.size()}},
                    {"hosts", std::int64_t{world_.num_hosts()}},
                    {"round", round},
                    {"backend", facts.backend},
                    {"device", device.is_cuda() ? "cuda" : "cpu"},
                    {"resumed_at", resumed_at},
                    {"workers", config_.workers},
                    {"save_every", counts_.save_every},
                    {"bucket_bytes", config_.bucket_bytes},
                    {"log_every", counts_.log_every}});
  if (run_.failures() > 0) {
    rank_log_->event(resumed_at, "restart",
                     {{"failures", run_.failures()}, {"after", resumed_at}, {"round", round}});
  }
}

void Training::announce() {
  const auto lines =
      start_lines(saved_, *task_, group_,
                  {.folder = folder_,
                   .sizes = sizes_,
                   .steps_per_epoch = loader_.steps_per_epoch(),
                   .schedule = schedule_.describe(),
                   .lr_reason = config_.lr_scaling == LrScaling::none ? "" : peak_lr_.reason,
                   .sharding = sharding_.reason,
                   .total = counts_.total,
                   .step = run_.step()});
  for (const auto& line : lines) reporter_->say(line);
}

}  // namespace lockstep::cli
