#include "cli/train/program/compression.h"

#include <utility>
#include <vector>

#include "lockstep/ddp/compress_16bit.h"

namespace lockstep::cli {
namespace {

PowerSgd power_sgd_of(const TrainConfig& config) {
  const auto rank = config.powersgd_rank > 0 ? config.powersgd_rank : kPowerSgdRank;
  return PowerSgd({.rank = static_cast<int>(rank),
                   .start_step = config.powersgd_start,
                   .seed = static_cast<std::uint64_t>(config.seed)});
}

}  // namespace

Compression::Compression(const TrainConfig& config) {
  const bool is_auto = config.compress == Compress::automatic;
  if (is_auto || config.compress == Compress::int8) int8_.emplace();
  if (config.compress == Compress::powersgd || (is_auto && config.powersgd_rank > 0)) {
    power_sgd_ = power_sgd_of(config);
  }
  switch (config.compress) {
    case Compress::none:
      break;
    case Compress::bf16:
      hook_ = compress_bf16();
      break;
    case Compress::fp16:
      hook_ = compress_fp16();
      break;
    case Compress::int8:
      hook_ = int8_->hook();
      break;
    case Compress::powersgd:
      hook_ = power_sgd_->hook();
      break;
    case Compress::automatic: {
      std::vector<GradientHook> candidates{all_reduce_hook(), compress_bf16(), int8_->hook()};
      if (power_sgd_) candidates.push_back(power_sgd_->hook());
      hook_ = GradientHook::fastest_of(std::move(candidates));
      break;
    }
  }
}

void Compression::track(Run& run) {
  if (int8_) run.track("int8", *int8_);
  if (power_sgd_) run.track("powersgd", *power_sgd_);
}

}  // namespace lockstep::cli
