// The configuration of a training run, as typed values. settings.h gives each value its name on the
// command line, in files and in the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train/length.h"

namespace lockstep::cli {

enum class ModelKind { gpt, resnet, mlp, transformer };
enum class OptimizerKind { adamw, adam, sgd };
enum class ScheduleKind { automatic, cosine, linear, step, constant };
enum class LrScaling { none, linear, square_root };
enum class TrainDevice { automatic, cpu, cuda };
enum class Precision { float32, bfloat16, float16 };
enum class HeadKind { tied, separate };
enum class KernelKind { own, libtorch };
enum class Augment { none, flip };
enum class ResumeKind { automatic, required };
enum class TailKind { drop, pad, uneven };
enum class Compress { none, bf16, fp16, int8, powersgd, automatic };
enum class Sharding { none, optimizer, gradients, automatic };
enum class CopiesKind { automatic, per_rank, per_host };

/// The defaults are those of a tiny GPT; default_config() has those of the other models.
struct TrainConfig {
  ModelKind model = ModelKind::gpt;

  // Model
  std::string size = "tiny";
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 128;
  std::int64_t vocabulary = 0;  // rows of the token embedding; 0: as many as the tokenizer has
  double dropout = 0;
  HeadKind head = HeadKind::tied;
  KernelKind kernels = KernelKind::own;
  std::vector<std::int64_t> hidden = {256, 256};  // widths of an mlp's hidden layers
  std::int64_t classes = 10;                      // of images and tables

  // Data
  std::string data = "auto";
  std::string tokenizer = "bytes";
  double val_fraction = 0.1;  // fraction of the data that only evaluations use
  Augment augment = Augment::none;
  std::int64_t workers = 0;  // reader threads per rank
  TailKind tail = TailKind::drop;

  // Training step
  std::int64_t batch = 8;         // samples per rank per micro-batch
  std::int64_t global_batch = 0;  // samples per step over all ranks; 0: batch x grad_accum x ranks
  std::int64_t grad_accum = 1;    // micro-batches per step; 0: derived from global_batch
  OptimizerKind optimizer = OptimizerKind::adamw;
  double lr = 2e-3;  // peak, after warm-up
  LrScaling lr_scaling = LrScaling::none;
  std::int64_t base_batch_size = 64;  // the global batch that `lr` is for, when it is scaled
  ScheduleKind schedule = ScheduleKind::automatic;
  TrainLength warmup = {20, TrainLength::Unit::steps};
  double min_lr_ratio = 0.1;  // final lr as a fraction of the peak
  double beta2 = 0.99;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double max_grad_norm = 1;  // 0: no clipping
  TrainDevice device = TrainDevice::automatic;
  bool allow_shared_gpu = false;
  Precision precision = Precision::float32;
  std::int64_t recompute = 0;            // checkpoint activations of every n-th block; 0: of none
  bool sync_batch_norm = false;          // BatchNorm over the batches of all ranks
  std::int64_t bucket_bytes = 25 << 20;  // 0: chosen by measurement
  Compress compress = Compress::none;    // of gradients between ranks
  std::int64_t powersgd_rank = 0;        // 0: kPowerSgdRank, and no candidate of `automatic`
  std::int64_t powersgd_start = 1000;    // steps before it are not compressed
  Sharding shard = Sharding::none;       // what the ranks divide among themselves
  CopiesKind copies = CopiesKind::automatic;  // of the parameters, with shards
  std::int64_t seed = 1;
  bool deterministic = false;
  bool cuda_graph = false;

  // Run
  TrainLength length = {600, TrainLength::Unit::steps};
  TrainLength eval_every = {100, TrainLength::Unit::steps};
  std::int64_t eval_batches = 16;    // per rank and evaluation; 0: all validation data
  std::int64_t patience = 0;         // evaluations without a new best before the end; 0: no limit
  std::int64_t sample_tokens = 160;  // length of the sample text per evaluation; 0: no text
  TrainLength save_every = {100, TrainLength::Unit::steps};
  std::int64_t keep = 3;
  TrainLength log_every = {10, TrainLength::Unit::steps};
  bool tensorboard = true;
  std::int64_t max_restarts = 3;
  std::string ranks = "auto";
  std::string run;  // the folder; empty: runs/<model>
  ResumeKind resume = ResumeKind::automatic;

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

constexpr std::int64_t kPowerSgdRank = 4;

/// The configuration of `lockstep train <kind>` without options.
[[nodiscard]] TrainConfig default_config(ModelKind kind);
/// That of --debug-small: a small model and few steps, to test a setup in less than a minute.
[[nodiscard]] TrainConfig debug_config(ModelKind kind);

[[nodiscard]] std::string_view name_of(ModelKind kind);
/// Whether the samples of the model are windows of tokens.
[[nodiscard]] bool trains_on_tokens(ModelKind kind);

}  // namespace lockstep::cli
