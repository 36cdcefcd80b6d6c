#include "cli/train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>

#include "cli/arguments.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kVariablePrefix = "LOCKSTEP_TRAIN_";

constexpr std::array kKinds{ModelKind::gpt, ModelKind::resnet, ModelKind::mlp,
                            ModelKind::transformer};

ModelKind read_kind(const std::string& word) {
  std::vector<std::string_view> names;
  for (const auto kind : kKinds) names.push_back(name_of(kind));
  return kKinds[read_choice("the model", word, names)];
}

std::string variable_of(const std::string& setting) {
  std::string name(kVariablePrefix);
  for (const char letter : setting) {
    name +=
        letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

// `rate = 3e-4` in a file of TOML's style.
std::vector<Given> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw UsageError(fmt::format("--config {}: there is no such file to read", path));
  }
  std::vector<Given> given;
  for (const auto& item : read_toml(file, path)) given.push_back({item.name, item.text, path});
  return given;
}

std::vector<Given> read_environment(ModelKind kind, const Environment& environment) {
  std::vector<Given> given;
  for (const auto& line : environment.lines()) {
    const auto name = line.substr(0, line.find('='));
    if (!name.starts_with(kVariablePrefix)) continue;
    const auto is_it = [&](const Setting& each) { return variable_of(each.name) == name; };
    if (std::any_of(settings().begin(), settings().end(), is_it)) continue;
    throw UsageError(
        fmt::format("{} is in the environment and names no setting; `lockstep train {} "
                    "--help` lists them",
                    name, name_of(kind)));
  }
  for (const auto& setting : settings()) {
    const auto name = variable_of(setting.name);
    const auto value = environment.find(name);
    if (value && setting.is_for(kind)) given.push_back({setting.name, *value, name});
  }
  return given;
}

// What is typed after the model: texts of settings, and what is none.
class CommandLine {
 public:
  CommandLine(ModelKind kind, TrainOptions& options)
      : options_(options), arguments_(fmt::format("train {}", name_of(kind)), options.help) {
    arguments_.flag("--print-config", options.print_config);
    arguments_.flag("--fresh", options.fresh);
    arguments_.flag("--debug-small", options.resolve.debug_small);
    arguments_.option("--config", file_);
    arguments_.option("--color", color_);
    for (const auto& setting : settings()) {
      if (setting.is_for(kind)) declare(setting);
    }
  }

  void read(const std::vector<std::string>& words) {
    arguments_.read(words);
    options_.color =
        std::array{ColorChoice::automatic, ColorChoice::always,
                   ColorChoice::never}[read_choice("--color", color_, {"auto", "always", "never"})];
  }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::vector<Given> given() const {
    std::vector<Given> result;
    for (const auto& [name, value] : values_) {
      if (value.flag) result.push_back({name, *value.flag ? "true" : "false", "--" + name});
      if (value.text) result.push_back({name, *value.text, "--" + name});
    }
    return result;
  }

 private:
  struct Value {  // of a setting that is a flag, or of one that is not
    std::optional<bool> flag;
    std::optional<std::string> text;
  };

  void declare(const Setting& setting) {
    auto names = "--" + setting.name;
    if (setting.name == "ranks") names += ",-n";
    auto& value = values_[setting.name];
    if (setting.is_flag) {
      arguments_.flag(names + ",!--no-" + setting.name, value.flag);
    } else {
      arguments_.option(names, value.text);
    }
  }

  TrainOptions& options_;
  std::string file_;
  std::string color_ = "auto";
  std::map<std::string, Value> values_;  // by setting
  Arguments arguments_;                  // sets the members above
};

constexpr std::string_view kOwnOptions =
    "  --config FILE      settings as `rate = 3e-4`, a line each; the command line wins\n"
    "  --print-config     each setting with its value and where that is from, and no training\n"
    "  --fresh            a new run folder beside the ones that are there\n"
    "  --debug-small      tiny data and model, done in seconds: does everything work?\n"
    "  --color WHEN       auto, always, never\n";

}  // namespace

TrainOptions read_train_options(const std::vector<std::string>& arguments,
                                const Environment& environment) {
  TrainOptions options;
  if (arguments.empty() || arguments.front() == "-h" || arguments.front() == "--help") {
    options.help = true;
    return options;
  }
  if (arguments.front().starts_with("-")) {
    throw UsageError(fmt::format("name the model before \"{}\": `lockstep train gpt {}`",
                                 arguments.front(), arguments.front()));
  }
  options.model = read_kind(arguments.front());
  CommandLine line(options.model, options);
  line.read(std::vector<std::string>(arguments.begin() + 1, arguments.end()));
  if (options.help) return options;
  const auto append = [&](std::vector<Given> more) {
    std::move(more.begin(), more.end(), std::back_inserter(options.given));
  };
  if (!line.file().empty()) append(read_file(line.file()));
  append(read_environment(options.model, environment));
  append(line.given());
  return options;
}

std::string train_help() {
  return fmt::format(
      "lockstep train MODEL [options]: train a model with one process a core\n"
      "\n"
      "  gpt                a language model, GPT-2's shapes from tiny to 1.5 B, on any text\n"
      "  resnet             ResNet-18 on images of 28 x 28 or 32 x 32\n"
      "  mlp                a multilayer perceptron on images or tables\n"
      "  transformer        the encoder that lockstep's speed is quoted for\n"
      "\n"
      "{}"
      "\n"
      "A run lies in a folder: configuration, checkpoints, metrics, logs. The same command again\n"
      "goes on where it was. `lockstep train gpt --help` lists the settings of one model.\n"
      "\n"
      "Examples:\n"
      "  lockstep train gpt\n"
      "  lockstep train gpt --data my.txt --size small --precision bf16 --for 50Mtok\n"
      "  lockstep train resnet --data fashion-mnist --for 5ep\n",
      kOwnOptions);
}

std::string train_help(ModelKind kind) {
  auto text = fmt::format(
      "lockstep train {} [options]\n"
      "\n{}",
      name_of(kind), kOwnOptions);
  const auto defaults = resolve(kind, {});
  std::string group;
  for (const auto& setting : settings()) {
    if (!setting.is_for(kind)) continue;
    if (setting.group != group) {
      group = setting.group;
      text += fmt::format("\n{}\n", group);
    }
    const auto value = setting.text(defaults.config);
    const auto name = setting.name == "ranks" ? "-n, --ranks" : "--" + setting.name;
    text += fmt::format("  {:<18} {}{}\n", name, setting.help,
                        value.empty() ? "" : fmt::format(" [{}]", value));
  }
  return text +
         "\nSettings may also stand in a file (--config) and in the environment "
         "(LOCKSTEP_TRAIN_RATE).\n";
}

}  // namespace lockstep::cli
