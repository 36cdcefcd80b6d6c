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

// Fills the table group by group.
class Table {
 public:
  void group(std::string name) { group_ = std::move(name); }

  /// A value that decides the run's result.
  template <typename T>
  Setting& add(const std::string& name, T TrainConfig::*member, const Kinds& kinds,
               std::string help) {
    Setting setting{.name = name, .group = group_, .help = std::move(help), .kinds = kinds};
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
  /// One that may be another when a run goes on.
  template <typename T>
  Setting& add_free(const std::string& name, T TrainConfig::*member, const Kinds& kinds,
                    std::string help) {
    auto& setting = add(name, member, kinds, std::move(help));
    setting.is_fixed = false;
    return setting;
  }

  std::vector<Setting> take() { return std::move(settings_); }

 private:
  std::string group_;
  std::vector<Setting> settings_;
};

void add_model(Table& table) {
  using C = TrainConfig;
  table.group("The model");
  table.add("size", &C::size, kGpt, "tiny (0.8 M), or GPT-2's small, medium, large, xl");
  table.add("layers", &C::layers, kTokens, "blocks");
  table.add("heads", &C::heads, kTokens, "of attention");
  table.add("width", &C::width, kWidth, "of a token's vector; of resnet's first stage");
  table.add("context", &C::context, kTokens, "tokens in a window");
  table.add("dropout", &C::dropout, kTokens, "the share of values dropped");
  table.add("head", &C::head, kGpt, "tied to the embedding, or separate");
  table.add("kernels", &C::kernels, kGpt, "own: quicker; libtorch: the bits of the same in Python");
  table.add("hidden", &C::hidden, kMlp, "widths of the hidden layers");
  table.add("classes", &C::classes, kSamples, "that targets are of");
}

void add_data(Table& table) {
  using C = TrainConfig;
  table.group("Data");
  table.add("data", &C::data, kAll,
            "a file, or a name of `lockstep data fetch`; several files with commas");
  table.add("tokenizer", &C::tokenizer, kTokens, "for text: bytes, gpt2, or a file");
  table.add("held-out", &C::held_out, kAll, "share of the data kept for evaluation");
  table.add("augment", &C::augment, kResnet, "none, or flip: images mirrored at random");
  table.add_free("workers", &C::workers, kAll, "threads a rank that read ahead");
}

void add_step(Table& table) {
  using C = TrainConfig;
  table.group("A step");
  table.add("batch", &C::batch, kAll, "samples a rank and micro-step");
  table.add("global-batch", &C::global_batch, kAll,
            "samples a step; 0: batch x accumulate x ranks");
  table.add("accumulate", &C::accumulate, kAll, "micro-steps a step; 0: what global-batch gives");
  table.add("optimizer", &C::optimizer, kAll, "adamw, adam, sgd");
  table.add("rate", &C::rate, kAll, "the learning rate at its highest");
  table.add("rate-scaling", &C::rate_scaling, kAll,
            "with the global batch: none, linear, square-root");
  table.add("rate-batch", &C::rate_batch, kAll, "the global batch that the rate was found with");
  table.add("schedule", &C::schedule, kAll,
            "cosine, linear, step, constant; auto: cosine, constant for a time");
  table.add("warmup", &C::warmup, kAll, "until the rate is at its highest");
  table.add("rate-floor", &C::rate_floor, kAll, "share of the rate that is left at the end");
  table.add("beta2", &C::beta2, kAll, "of adam and adamw");
  table.add("momentum", &C::momentum, kAll, "of sgd");
  table.add("weight-decay", &C::weight_decay, kAll, "not for biases and norms");
  table.add("clip", &C::clip, kAll, "longest gradient; 0: any");
  table.add("precision", &C::precision, kAll, "fp32, bf16, fp16 (with a loss scale)");
  table.add_free("recompute", &C::recompute, kTokens,
                 "every so many blocks again in backward, for less memory");
  auto& bucket = table.add_free("bucket-bytes", &C::bucket_bytes, kAll,
                                "one all-reduce moves about this; auto: measured");
  bucket.set = [](TrainConfig& config, const std::string& text) {
    config.bucket_bytes = read_bytes("--bucket-bytes", text);
  };
  bucket.text = [](const TrainConfig& config) { return spell_bytes(config.bucket_bytes); };
  table.add("seed", &C::seed, kAll, "of weights, order and dropout");
  table.add("deterministic", &C::deterministic, kAll, "refuse operators that are not");
}

void add_run(Table& table) {
  using C = TrainConfig;
  table.group("The run");
  table.add_free("for", &C::length, kAll, "how long: 300st, 2ep, 50Mtok, 10min");
  table.add_free("ranks", &C::ranks, kAll, "processes: a number, or auto: one a core");
  table.add_free("run", &C::run, kAll, "its folder; default runs/<model>");
  table.add_free("resume", &C::resume, kAll, "auto: go on where there is a run; required");
  table.add_free("evaluate-every", &C::evaluate_every, kAll, "on held-out data");
  table.add("evaluate-batches", &C::evaluate_batches, kAll, "a rank; 0: all of it");
  table.add_free("patience", &C::patience, kAll,
                 "evaluations without a better one, then it ends; 0: any");
  table.add_free("sample-tokens", &C::sample_tokens, kGpt, "of text at each evaluation");
  table.add_free("save-every", &C::save_every, kAll, "checkpoints");
  table.add_free("keep", &C::keep, kAll, "checkpoints, beside the best one");
  table.add_free("log-every", &C::log_every, kAll, "lines of metrics.jsonl");
  table.add_free("tensorboard", &C::tensorboard, kAll, "event files too");
  table.add_free("max-restarts", &C::max_restarts, kAll, "after a rank has died");
}

std::vector<Setting> make_settings() {
  Table table;
  add_model(table);
  add_data(table);
  add_step(table);
  add_run(table);
  return table.take();
}

// The shape that a size stands for, in place of the defaults.
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

ResolvedConfig resolve(ModelKind kind, const std::vector<Given>& given, ResolveOptions options) {
  ResolvedConfig resolved{options.debug_small ? debug_config(kind) : default_config(kind), {}};
  const auto plain = default_config(kind);
  for (const auto& setting : settings()) {
    if (!setting.is_for(kind)) continue;
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
  check(resolved);
  return resolved;
}

std::string describe(const ResolvedConfig& resolved) {
  std::string text;
  std::string group;
  for (const auto& setting : settings()) {
    if (!setting.is_for(resolved.config.model)) continue;
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
