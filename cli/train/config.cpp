#include "cli/train/config.h"

namespace lockstep::cli {
namespace {

using Unit = TrainLength::Unit;

// The defaults that resnet and mlp share.
TrainConfig classifier(ModelKind kind) {
  TrainConfig config;
  config.model = kind;
  config.batch = 64;
  config.dropout = 0;
  config.beta2 = 0.999;
  config.weight_decay = 0.01;
  config.warmup = {100, Unit::steps};
  config.length = {5, Unit::epochs};
  config.eval_every = {1, Unit::epochs};
  config.save_every = {1, Unit::epochs};
  config.log_every = {20, Unit::steps};
  config.eval_batches = 0;
  config.lr = 1e-3;
  config.sample_tokens = 0;
  return config;
}

}  // namespace

TrainConfig default_config(ModelKind kind) {
  switch (kind) {
    case ModelKind::gpt:
      return {};
    case ModelKind::resnet: {
      auto config = classifier(kind);
      config.width = 16;
      config.augment = Augment::flip;
      config.lr = 3e-3;
      return config;
    }
    case ModelKind::mlp:
      return classifier(kind);
    case ModelKind::transformer: {
      TrainConfig config;
      config.model = kind;
      config.layers = 6;
      config.heads = 8;
      config.width = 512;
      config.context = 64;
      config.batch = 2;
      config.lr = 3e-4;
      config.length = {100, Unit::steps};
      config.sample_tokens = 0;
      return config;
    }
  }
  return {};
}

TrainConfig debug_config(ModelKind kind) {
  auto config = default_config(kind);
  config.layers = 2;
  config.heads = 2;
  config.width = kind == ModelKind::resnet ? 8 : 64;
  config.context = 64;
  config.hidden = {64};
  config.batch = trains_on_tokens(kind) ? 4 : 32;
  config.length = {40, Unit::steps};
  config.warmup = {4, Unit::steps};
  config.eval_every = {20, Unit::steps};
  config.eval_batches = 4;
  config.save_every = {20, Unit::steps};
  config.log_every = {5, Unit::steps};
  return config;
}

std::string_view name_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::gpt:
      return "gpt";
    case ModelKind::resnet:
      return "resnet";
    case ModelKind::mlp:
      return "mlp";
    case ModelKind::transformer:
      return "transformer";
  }
  return "";
}

bool trains_on_tokens(ModelKind kind) {
  return kind == ModelKind::gpt || kind == ModelKind::transformer;
}

}  // namespace lockstep::cli
