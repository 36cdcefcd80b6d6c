#include "cli/train/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/arguments.h"
#include "cli/nearest.h"
#include "cli/train/setting_values.h"
#include "cli/train/settings_check.h"
#include "lockstep/base/error.h"
#include "models/gpt_shape.h"

namespace lockstep::cli {
namespace {

using Kinds = std::vector<ModelKind>;

const Kinds kAll{ModelKind::gpt, ModelKind::resnet, ModelKind::mlp, ModelKind::transformer};
const Kinds kTokens{ModelKind::gpt, ModelKind::transformer};
const Kinds kGpt{ModelKind::gpt};
const Kinds kMlp{ModelKind::mlp};
const Kinds kResnet{ModelKind::resnet};
const Kinds kWidth{ModelKind::gpt, ModelKind::resnet, ModelKind::transformer};
const Kinds kSamples{ModelKind::resnet, ModelKind::mlp};

// The placeholder for a value of type T in the help.
template <typename T>
std::string placeholder() {
  if constexpr (std::is_same_v<T, bool>) return "";
  if constexpr (std::is_same_v<T, std::int64_t>) return "N";
  if constexpr (std::is_same_v<T, double>) return "X";
  if constexpr (std::is_same_v<T, TrainLength>) return "D";
  if constexpr (std::is_enum_v<T>) return "WORD";
  return "TEXT";
}

// Fills the table group by group.
class Table {
 public:
  void group(std::string name) { group_ = std::move(name); }

  /// A value that the result of the run depends on.
  template <typename T>
  Setting& add(const std::string& name, T TrainConfig::*member, const Kinds& kinds,
               std::string help) {
    Setting setting{.name = name,
                    .value = placeholder<T>(),
                    .group = group_,
                    .help = std::move(help),
                    .kinds = kinds};
    setting.is_flag = std::is_same_v<T, bool>;
    const std::string option = "--" + name;
    if constexpr (std::is_enum_v<T>) {
      setting.set = [option, member](TrainConfig& config, const std::string& text) {
        config.*member = static_cast<T>(read_choice(option, text, words_of(T{})));
      };
      setting.text = [member](const TrainConfig& config) {
        return std::string(words_of(T{})[static_cast<std::size_t>(config.*member)]);
      };
    } else {
      setting.set = [option, member](TrainConfig& config, const std::string& text) {
        read(option, text, config.*member);
      };
      setting.text = [member](const TrainConfig& config) { return spell(config.*member); };
    }
    settings_.push_back(std::move(setting));
    return settings_.back();
  }
  /// A value that may change when the run resumes.
  template <typename T>
  Setting& add_free(const std::string& name, T TrainConfig::*member, const Kinds& kinds,
                    std::string help) {
    auto& setting = add(name, member, kinds, std::move(help));
    setting.is_fixed = false;
    return setting;
  }
  /// The length of the run in `unit`.
  void add_length(TrainLength::Unit unit, std::string value, const Kinds& kinds, std::string help) {
    const std::string name(length_option(unit).substr(2));
    auto& setting = add_free(name, &TrainConfig::length, kinds, std::move(help));
    setting.value = std::move(value);
    setting.length_unit = unit;
    setting.set = [unit](TrainConfig& config, const std::string& text) {
      config.length = parse_length_in(unit, text);
    };
    setting.text = [](const TrainConfig& config) { return value_text(config.length); };
  }

  std::vector<Setting> take() { return std::move(settings_); }

 private:
  std::string group_;
  std::vector<Setting> settings_;
};

void add_model(Table& table) {
  using C = TrainConfig;
  table.group("Model");
  table
      .add("size", &C::size, kGpt,
           "tiny (0.8 M parameters), or the shape of GPT-2 small, medium, large or xl")
      .value = "NAME";
  table.add("layers", &C::layers, kTokens, "transformer blocks");
  table.add("heads", &C::heads, kTokens, "attention heads per block");
  table.add("width", &C::width, kWidth,
            "embedding width, a multiple of --heads (resnet: channels of the first stage)");
  table.add("context", &C::context, kTokens, "tokens per sample");
  table.add("vocabulary", &C::vocabulary, kGpt,
            "rows of the token embedding, at least the tokenizer's vocabulary; a multiple of 64 is "
            "faster on GPUs (50304 for gpt2); 0: that vocabulary");
  table.add("dropout", &C::dropout, kTokens, "dropout probability; 0 disables dropout");
  table.add("head", &C::head, kGpt, "output layer: tied to the token embedding, or separate");
  table.add("kernels", &C::kernels, kGpt,
            "own (faster), or libtorch (bit-identical to the same model in Python)");
  table.add("hidden", &C::hidden, kMlp, "widths of the hidden layers, with commas").value = "N,N";
  table.add("classes", &C::classes, kSamples, "number of classes; ignored for numeric targets");
}

void add_data(Table& table) {
  using C = TrainConfig;
  table.group("Data");
  table
      .add("data", &C::data, kAll,
           "file, several files with commas, or a name that `lockstep data fetch --help` lists; "
           "auto: shakespeare for text models, else fashion-mnist")
      .value = "FILE";
  table.add("tokenizer", &C::tokenizer, kTokens, "for text files: bytes, gpt2, or a file").value =
      "NAME";
  table.add("val-fraction", &C::val_fraction, kAll,
            "fraction of the data kept for validation; 0: no validation data");
  table.add("augment", &C::augment, kResnet, "training images: none, or flip (mirrored at random)");
  table.add("tail", &C::tail, kAll,
            "samples at the end of an epoch that fill no global batch: drop, pad (repeat others), "
            "or uneven (smaller batches, weighted by their true counts)");
  table.add_free("workers", &C::workers, kAll,
                 "data loading threads per rank; 0: the training thread loads");
}

void add_batch(Table& table) {
  using C = TrainConfig;
  table.group("Batch");
  table.add("batch", &C::batch, kAll, "samples per rank per micro-batch");
  table.add("grad-accum", &C::grad_accum, kAll,
            "micro-batches per step; 0: as --global-batch requires");
  table.add("global-batch", &C::global_batch, kAll,
            "samples per step over all ranks; 0: batch x grad-accum x ranks");
}

void add_optimizer(Table& table) {
  using C = TrainConfig;
  table.group("Optimizer");
  table.add("optimizer", &C::optimizer, kAll, "adamw, adam or sgd");
  table.add("lr", &C::lr, kAll, "peak learning rate");
  table.add("lr-scaling", &C::lr_scaling, kAll,
            "multiply lr by global batch / base-batch-size (linear), by its square root "
            "(square-root), or by 1 (none)");
  table.add("base-batch-size", &C::base_batch_size, kAll,
            "global batch, in samples, that --lr is for; with --lr-scaling");
  table.add("schedule", &C::schedule, kAll,
            "lr after the warm-up: cosine, linear, step or constant; auto: constant with --time, "
            "else cosine");
  table.add("warmup", &C::warmup, kAll, "length of the linear warm-up of lr");
  table.add("min-lr-ratio", &C::min_lr_ratio, kAll,
            "final lr as a fraction of the peak, for cosine and linear");
  table.add("beta2", &C::beta2, kAll,
            "second beta (running mean of squared gradients), for adam and adamw");
  table.add("momentum", &C::momentum, kAll, "momentum, for sgd; 0 disables it");
  table.add("weight-decay", &C::weight_decay, kAll,
            "weight decay, not applied to biases and norms; 0 disables it");
  table.add("max-grad-norm", &C::max_grad_norm, kAll, "maximum gradient norm; 0 disables clipping");
}

void add_computation(Table& table) {
  using C = TrainConfig;
  table.group("Computation");
  table.add_free(
      "device", &C::device, kAll,
      "cpu (one rank per core), cuda (one rank, or --ranks with a GPU each), or auto: the "
      "GPU if there is one for each of --ranks");
  table.add_free("allow-shared-gpu", &C::allow_shared_gpu, kAll,
                 "several ranks may train on one GPU");
  table.add("precision", &C::precision, kAll, "fp32, bf16, or fp16 (with loss scaling)");
  table.add_free("recompute", &C::recompute, kTokens,
                 "checkpoint activations of every N-th block (less memory, more compute); 0 "
                 "disables");
  table.add("sync-batch-norm", &C::sync_batch_norm, kResnet,
            "BatchNorm over the batches of all ranks, for small batches per rank");
  auto& bucket = table.add_free("bucket-bytes", &C::bucket_bytes, kAll,
                                "gradient bytes per all-reduce, as 64KiB or 25MiB; auto: measured");
  bucket.value = "SIZE";
  bucket.set = [](TrainConfig& config, const std::string& text) {
    config.bucket_bytes = read_bytes("--bucket-bytes", text);
  };
  bucket.text = [](const TrainConfig& config) { return spell_bytes(config.bucket_bytes); };
  table.add("compress", &C::compress, kAll,
            "gradients between ranks: none, bf16, fp16, int8, powersgd, or auto (the fastest by "
            "measurement; none on one host)");
  table.add("powersgd-rank", &C::powersgd_rank, kAll,
            "rank of --compress powersgd, 0: 4; with auto, PowerSGD is a candidate if it is given");
  table.add("powersgd-start", &C::powersgd_start, kAll,
            "first step that PowerSGD compresses; earlier ones are sent as they are");
  table.add_free("shard", &C::shard, kAll,
                 "none, optimizer (each rank updates a part of the parameters and has the "
                 "optimizer's state of it only; the same result), gradients (also the gradients "
                 "of it only: less memory), or auto: optimizer with several ranks on one host");
  table.add_free("copies", &C::copies, kAll,
                 "copies of the parameters, with --shard: per-rank, per-host (one for all ranks of "
                 "a host: less memory), or auto: per-host on one host and the CPU");
  table.add("seed", &C::seed, kAll, "seed of initial weights, data order and dropout");
  table.add("deterministic", &C::deterministic, kAll,
            "refuse operators without a deterministic implementation");
  table.add_free("cuda-graph", &C::cuda_graph, kAll,
                 "replay each step as one CUDA graph (small models; a GPU per rank, "
                 "--grad-accum 1)");
}

void add_run(Table& table) {
  using C = TrainConfig;
  using Unit = TrainLength::Unit;
  table.group("Length of the run");
  table.add_length(Unit::steps, "N", kAll, "optimizer steps");
  table.add_length(Unit::epochs, "X", kAll, "passes over the training data");
  table.add_length(Unit::tokens, "N", kTokens, "training tokens");
  table.add_length(Unit::seconds, "T", kAll,
                   "training time, as 90s, 10min or 6h; evaluations and saves do not count");
  table.group("Run");
  table
      .add_free("ranks", &C::ranks, kAll,
                "processes on this machine; auto: one on a GPU, on the CPU one per core")
      .value = "N";
  table.add_free("run", &C::run, kAll, "folder of the run (default runs/<model>)").value = "DIR";
  table.add_free("resume", &C::resume, kAll,
                 "auto: resume if the folder holds a run; required: fail if it does not");
  table.add_free("max-restarts", &C::max_restarts, kAll,
                 "restarts from the newest checkpoint after a rank has died; 0: none");
  table.group("Evaluation, checkpoints, logs");
  table.add_free("eval-every", &C::eval_every, kAll, "interval between evaluations");
  table.add("eval-batches", &C::eval_batches, kAll,
            "batches per rank and evaluation; 0: all validation data");
  table.add_free("patience", &C::patience, kAll,
                 "evaluations without a new best loss that end the run; 0: no limit");
  table.add_free("sample-tokens", &C::sample_tokens, kGpt,
                 "tokens of sample text per evaluation; 0: no text");
  table.add_free("save-every", &C::save_every, kAll, "interval between checkpoints");
  table.add_free("keep", &C::keep, kAll,
                 "newest checkpoints to keep, 2 or more, beside the best one");
  table.add_free("log-every", &C::log_every, kAll, "interval between rows of metrics.jsonl");
  table.add_free("tensorboard", &C::tensorboard, kAll, "write TensorBoard event files too");
}

std::vector<Setting> make_settings() {
  Table table;
  add_model(table);
  add_data(table);
  add_batch(table);
  add_optimizer(table);
  add_computation(table);
  add_run(table);
  return table.take();
}

// Replaces the default shape by that of config.size.
void apply_size(TrainConfig& config, std::map<std::string, std::string>& origins) {
  const auto shape = models::gpt_shape(config.size);
  config.layers = shape.layers;
  config.heads = shape.heads;
  config.width = shape.width;
  config.context = shape.context;
  for (const auto* name : {"layers", "heads", "width", "context"}) {
    origins[name] = "size " + config.size;
  }
}

}  // namespace

bool Setting::is_for(ModelKind kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool Setting::is_used_by(const TrainConfig& config) const {
  return is_for(config.model) && (!length_unit || *length_unit == config.length.unit);
}

std::span<const Setting> settings() {
  static const auto table = make_settings();
  return table;
}

const Setting& find_setting(ModelKind kind, std::string_view name, std::string_view origin) {
  std::vector<std::string_view> names;
  for (const auto& setting : settings()) {
    if (!setting.is_for(kind)) continue;
    if (setting.name == name) return setting;
    names.push_back(setting.name);
  }
  const auto nearest = try_nearest(name, names);
  throw UsageError(fmt::format(
      "{}: \"{}\" is not a setting of {}{} `lockstep train {} --help` lists them", origin, name,
      name_of(kind), nearest ? fmt::format("; did you mean {}?", *nearest) : ".", name_of(kind)));
}

const Setting& length_setting(const TrainConfig& config) {
  const auto all = settings();
  return *std::ranges::find_if(all, [&](const Setting& each) {
    return each.length_unit && *each.length_unit == config.length.unit;
  });
}

ResolvedConfig resolve(ModelKind kind, const std::vector<Given>& given, ResolveOptions options) {
  ResolvedConfig resolved{options.debug_small ? debug_config(kind) : default_config(kind), {}};
  const auto plain = default_config(kind);
  for (const auto& setting : settings()) {
    if (!setting.is_used_by(resolved.config)) continue;
    const bool is_small = setting.text(resolved.config) != setting.text(plain);
    resolved.origins[setting.name] = is_small ? "--debug-small" : "default";
  }
  const auto set = [&](const Given& each) {
    const auto& setting = find_setting(kind, each.name, each.origin);
    setting.set(resolved.config, each.text);
    resolved.origins[setting.name] = each.origin;
  };
  const auto is_size = [](const Given& each) { return each.name == "size"; };
  if (kind == ModelKind::gpt && std::any_of(given.begin(), given.end(), is_size)) {
    for (const auto& each : given) {
      if (is_size(each)) set(each);
    }
    apply_size(resolved.config, resolved.origins);
  }
  for (const auto& each : given) set(each);
  for (const auto& setting : settings()) {
    if (!setting.is_used_by(resolved.config)) resolved.origins.erase(setting.name);
  }
  check(resolved);
  return resolved;
}

std::string describe(const ResolvedConfig& resolved) {
  std::string text;
  std::string group;
  for (const auto& setting : settings()) {
    if (!setting.is_used_by(resolved.config)) continue;
    if (setting.group != group) {
      group = setting.group;
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", group);
    }
    auto value = setting.text(resolved.config);
    const bool is_word = value.find_first_not_of("0123456789.-+e") != std::string::npos;
    if (value.empty() || (is_word && !setting.is_flag)) value = fmt::format("\"{}\"", value);
    text += fmt::format("{:<16} = {:<14} # {}\n", setting.name, value,
                        resolved.origins.at(setting.name));
  }
  return text;
}

}  // namespace lockstep::cli
