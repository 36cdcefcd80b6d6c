#include "cli/train/saved_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/train/old_spellings.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/whole_file.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep-train-config";
constexpr int kVersion = 1;

ModelKind kind_called(const std::string& name) {
  for (const auto kind :
       {ModelKind::gpt, ModelKind::resnet, ModelKind::mlp, ModelKind::transformer}) {
    if (name == name_of(kind)) return kind;
  }
  throw UsageError(fmt::format("this version has no model \"{}\"", name));
}

std::string path_in(const std::string& folder) { return folder + "/config.json"; }

}  // namespace

std::string to_json(const SavedConfig& saved) {
  Json settings_json;
  for (const auto& setting : settings()) {
    if (!setting.is_used_by(saved.resolved.config)) continue;
    settings_json[setting.name] = {{"value", setting.text(saved.resolved.config)},
                                   {"origin", saved.resolved.origins.at(setting.name)}};
  }
  const Json json{{"format", kFormat},
                  {"version", kVersion},
                  {"model", name_of(saved.resolved.config.model)},
                  {"world", saved.world},
                  {"data",
                   {{"name", saved.files.name},
                    {"training", saved.files.training},
                    {kValidationKey, saved.files.validation},
                    {"tokenizer", saved.files.tokenizer},
                    {"vocabulary", saved.files.vocabulary},
                    {"remark", saved.files.remark}}},
                  {"settings", settings_json}};
  return json.dump(2) + "\n";
}

std::vector<std::string> data_paths(const std::string& folder, const DataFiles& files) {
  std::vector<std::string> paths;
  for (const auto* list : {&files.training, &files.validation}) {
    for (const auto& path : *list) paths.push_back((std::filesystem::path(folder) / path).string());
  }
  return paths;
}

models::GptOptions gpt_of(const SavedConfig& saved) {
  const auto& config = saved.resolved.config;
  if (config.vocabulary > 0 && config.vocabulary < saved.files.vocabulary) {
    throw UsageError(
        fmt::format("--vocabulary is {}, but the tokenizer has {} tokens: give at least "
                    "as many",
                    config.vocabulary, saved.files.vocabulary));
  }
  return {.vocabulary = std::max(config.vocabulary, saved.files.vocabulary),
          .context = config.context,
          .layers = config.layers,
          .heads = config.heads,
          .width = config.width,
          .dropout = config.dropout,
          .head = config.head == HeadKind::tied ? models::GptHead::tied : models::GptHead::separate,
          .kernels = config.kernels == KernelKind::own ? models::GptKernels::own
                                                       : models::GptKernels::libtorch};
}

SavedConfig saved_config_from_json(const std::string& text, const std::string& origin) {
  try {
    const auto json = Json::parse(text);
    if (json.at("format") != kFormat || json.at("version") != kVersion) {
      throw UsageError(fmt::format("expected format {} version {}", kFormat, kVersion));
    }
    SavedConfig saved;
    std::vector<Given> given;
    std::map<std::string, std::string> origins;
    for (const auto& [name, value] : json.at("settings").items()) {
      const auto renamed = with_new_name({name, value.at("value")});
      given.push_back({renamed.name, renamed.text, origin});
      const std::string from = value.at("origin");
      origins[renamed.name] = from == "--" + name ? "--" + renamed.name : from;
    }
    saved.resolved = resolve(kind_called(json.at("model")), given);
    for (auto& [name, from] : origins) saved.resolved.origins[name] = std::move(from);
    saved.world = json.at("world");
    const auto& data = json.at("data");
    const auto& validation =
        data.at(std::string(data.contains(kValidationKey) ? kValidationKey : kOldValidationKey));
    saved.files = {data.at("name"),      data.at("training"),   validation,
                   data.at("tokenizer"), data.at("vocabulary"), data.at("remark")};
    return saved;
  } catch (const Json::exception& error) {
    throw UsageError(
        fmt::format("{} is not a configuration of `lockstep train`: {}", origin, error.what()));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} is invalid: {}", origin, error.what()));
  }
}

std::optional<SavedConfig> try_read_config(const std::string& folder) {
  const auto path = path_in(folder);
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return saved_config_from_json(text.str(), path);
}

SavedConfig read_config(const std::string& folder) {
  if (auto saved = try_read_config(folder)) return *std::move(saved);
  throw UsageError(
      fmt::format("{} has no config.json, so it is not the folder of a `lockstep train` run: name "
                  "such a folder",
                  folder));
}

void write_config(const std::string& folder, const SavedConfig& saved) {
  write_whole(path_in(folder), to_json(saved));
}

std::string deciding_json(const SavedConfig& saved) {
  Json json{{"model", name_of(saved.resolved.config.model)}, {"data", saved.files.name}};
  for (const auto& setting : settings()) {
    if (!setting.is_for(saved.resolved.config.model) || !setting.is_fixed) continue;
    // Runs made before the setting existed do not have it, and this value is what they did.
    if (setting.name == "vocabulary" && saved.resolved.config.vocabulary == 0) continue;
    if (setting.name == "sync-batch-norm" && !saved.resolved.config.sync_batch_norm) continue;
    if (setting.name == "tail" && saved.resolved.config.tail == TailKind::drop) continue;
    const bool is_of_compression =
        setting.name == "compress" || setting.name.starts_with("powersgd-");
    if (is_of_compression && saved.resolved.config.compress == Compress::none) continue;
    json[setting.name] = setting.text(saved.resolved.config);
  }
  return json.dump();
}

std::vector<std::string> differences(const SavedConfig& saved, const TrainConfig& asked) {
  std::vector<std::string> result;
  for (const auto& setting : settings()) {
    if (!setting.is_for(asked.model) || !setting.is_fixed) continue;
    const auto was = setting.text(saved.resolved.config);
    const auto is = setting.text(asked);
    if (was != is) result.push_back(fmt::format("--{} {}, not {}", setting.name, was, is));
  }
  return result;
}

}  // namespace lockstep::cli
