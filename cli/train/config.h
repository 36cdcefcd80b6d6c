// Everything that decides a training run, as typed values. Settings (settings.h) give each its name
// on the command line, in files and in the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train/length.h"

namespace lockstep::cli {

enum class ModelKind { gpt, resnet, mlp, transformer };
enum class OptimizerKind { adamw, adam, sgd };
enum class ScheduleKind { automatic, cosine, linear, step, constant };
enum class RateScaling { none, linear, square_root };
enum class Precision { float32, bfloat16, float16 };
enum class HeadKind { tied, separate };
enum class KernelKind { own, libtorch };
enum class Augment { none, flip };
enum class ResumeKind { automatic, required };

/// The defaults are those of a tiny GPT; default_config() has the others'.
struct TrainConfig {
  ModelKind model = ModelKind::gpt;

  // The model
  std::string size = "tiny";
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 128;
  double dropout = 0;
  HeadKind head = HeadKind::tied;
  KernelKind kernels = KernelKind::own;
  std::vector<std::int64_t> hidden = {256, 256};  // of an mlp
  std::int64_t classes = 10;                      // of images and tables

  // Data
  std::string data = "auto";
  std::string tokenizer = "bytes";
  double held_out = 0.1;  // the share of the data that is kept for evaluation
  Augment augment = Augment::none;
  std::int64_t workers = 0;

  // A step
  std::int64_t batch = 8;         // samples a rank and micro-step
  std::int64_t global_batch = 0;  // samples a step over all ranks; 0: what the others give
  std::int64_t accumulate = 1;    // micro-steps; 0: what global_batch gives
  OptimizerKind optimizer = OptimizerKind::adamw;
  double rate = 2e-3;
  RateScaling rate_scaling = RateScaling::none;
  std::int64_t rate_batch = 64;  // the global batch that `rate` was found with
  ScheduleKind schedule = ScheduleKind::automatic;
  TrainLength warmup = {20, TrainLength::Unit::steps};
  double rate_floor = 0.1;  // the share of the rate that a schedule ends with
  double beta2 = 0.99;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double clip = 1;  // the longest gradient; 0: no clipping
  Precision precision = Precision::float32;
  std::int64_t recompute = 0;  // every so many blocks; 0: none
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t seed = 1;
  bool deterministic = false;

  // The run
  TrainLength length = {600, TrainLength::Unit::steps};
  TrainLength evaluate_every = {100, TrainLength::Unit::steps};
  std::int64_t evaluate_batches = 16;  // on each rank; 0: all held-out data
  std::int64_t patience = 0;           // evaluations without a better one; 0: any number
  std::int64_t sample_tokens = 160;    // of the sample text at an evaluation
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

/// What `lockstep train <kind>` does when nothing else is said.
[[nodiscard]] TrainConfig default_config(ModelKind kind);
/// The same, small enough to end in well under a minute: for looking whether everything works.
[[nodiscard]] TrainConfig debug_config(ModelKind kind);

[[nodiscard]] std::string_view name_of(ModelKind kind);
/// Whether its samples are windows of tokens.
[[nodiscard]] bool takes_tokens(ModelKind kind);

}  // namespace lockstep::cli
