#include "cli/train/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "cli/arguments.h"
#include "cli/train/old_spellings.h"
#include "lockstep/base/error.h"
#include "lockstep/trace/profile_request.h"

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

std::string variable_of(std::string_view setting) {
  std::string name(kVariablePrefix);
  for (const char letter : setting) {
    name +=
        letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

std::string option_of(std::string_view setting) { return fmt::format("--{}", setting); }

// Throws UsageError when `given`, which is from one source, has the length of the run twice.
// `spell` writes the name of a setting as in that source.
void expect_one_length(const std::vector<Given>& given,
                       const std::function<std::string(std::string_view)>& spell) {
  std::vector<std::string> names;
  for (const auto& setting : settings()) {
    const auto is_it = [&](const Given& each) { return each.name == setting.name; };
    if (setting.length_unit && std::ranges::any_of(given, is_it)) {
      names.push_back(spell(setting.name));
    }
  }
  if (names.size() < 2) return;
  throw UsageError(
      fmt::format("{} are given: each is the length of the run; give exactly one of steps, epochs, "
                  "tokens and time",
                  fmt::join(names, " and ")));
}

// Settings in a file of TOML's style: `lr = 3e-4`.
std::vector<Given> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("--config {}: no such file, or not readable", path));
  std::vector<Given> given;
  std::vector<std::string> renamings;
  const auto plain = [](std::string_view name) { return std::string(name); };
  for (const auto& item : read_toml(file, path)) {
    if (const auto* old = try_old_setting(item.name)) {
      renamings.push_back(renaming_text(*old, plain));
    }
    given.push_back({item.name, item.text, path});
  }
  if (!renamings.empty()) {
    throw UsageError(fmt::format("{}: {}", path, fmt::join(renamings, "; ")));
  }
  expect_one_length(given,
                    [&](std::string_view name) { return fmt::format("{}: {}", path, name); });
  return given;
}

// Throws UsageError for a variable LOCKSTEP_TRAIN_… that is not a setting of any model.
void expect_setting(ModelKind kind, const std::string& variable) {
  for (const auto& setting : settings()) {
    if (variable_of(setting.name) == variable) return;
  }
  auto name = variable.substr(kVariablePrefix.size());
  for (auto& letter : name) {
    letter =
        letter == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  if (const auto* old = try_old_setting(name)) {
    throw UsageError(fmt::format("{} in the environment", renaming_text(*old, variable_of)));
  }
  throw UsageError(
      fmt::format("{} is in the environment and is not a setting; `lockstep train {} --help` lists "
                  "the settings",
                  variable, name_of(kind)));
}

std::vector<Given> read_environment(ModelKind kind, const Environment& environment) {
  std::vector<Given> given;
  for (const auto& line : environment.lines()) {
    const auto name = line.substr(0, line.find('='));
    if (name.starts_with(kVariablePrefix)) expect_setting(kind, name);
  }
  for (const auto& setting : settings()) {
    const auto name = variable_of(setting.name);
    const auto value = environment.find(name);
    if (value && setting.is_for(kind)) given.push_back({setting.name, *value, name});
  }
  expect_one_length(given, variable_of);
  return given;
}

// The arguments after the model: values of settings, and options of the command itself.
class CommandLine {
 public:
  CommandLine(ModelKind kind, TrainOptions& options)
      : options_(options), arguments_(fmt::format("train {}", name_of(kind)), options.help) {
    arguments_.flag("--print-config", options.print_config);
    arguments_.flag("--fresh", options.fresh);
    arguments_.flag("--debug-small", options.resolve.debug_small);
    arguments_.option("--config", file_);
    arguments_.option("--profile", options.profile);
    arguments_.option("--color", color_);
    arguments_.option("--metrics-port", metrics_port_, {0, 65535});
    nodes_.declare(arguments_);
    for (const auto& setting : settings()) {
      if (setting.is_for(kind)) declare(setting);
    }
    arguments_.explain_unknown([](const std::string& option) -> std::optional<std::string> {
      const auto* old = try_old_setting(std::string_view(option).substr(2));
      return old == nullptr ? std::nullopt : std::optional(renaming_text(*old, option_of));
    });
  }

  void read(const std::vector<std::string>& words) {
    arguments_.read(words);
    if (!options_.profile.empty()) (void)parse_profile_request("--profile", options_.profile);
    expect_one_length(given(), option_of);
    options_.color =
        std::array{ColorChoice::automatic, ColorChoice::always,
                   ColorChoice::never}[read_choice("--color", color_, {"auto", "always", "never"})];
    options_.nodes = nodes_.read();
    if (metrics_port_ >= 0) options_.metrics_port = static_cast<std::uint16_t>(metrics_port_);
  }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::vector<Given> given() const {
    std::vector<Given> result;
    for (const auto& [name, value] : values_) {
      if (value.flag) result.push_back({name, *value.flag ? "true" : "false", option_of(name)});
      if (value.text) result.push_back({name, *value.text, option_of(name)});
    }
    return result;
  }

 private:
  struct Value {  // one of the two, by Setting::is_flag
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
  int metrics_port_ = -1;
  NodeArguments nodes_;
  std::map<std::string, Value> values_;  // by setting
  Arguments arguments_;                  // sets the members above
};

constexpr std::size_t kHelpColumn = 24;  // where descriptions begin
constexpr std::size_t kHelpWidth = 80;

// `name` and its description as lines of kHelpWidth columns; `last` is not split.
std::string help_entry(const std::string& name, std::string_view description,
                       std::string_view last = "") {
  std::string text;
  auto line = "  " + name;
  // A description that would touch the name begins in the next line.
  if (line.size() + 1 < kHelpColumn) {
    line.resize(kHelpColumn - 1, ' ');
  } else {
    text = line + "\n";
    line.assign(kHelpColumn - 1, ' ');
  }
  const auto add = [&](std::string_view word) {
    if (line.size() + 1 + word.size() > kHelpWidth) {
      text += line + "\n";
      line.assign(kHelpColumn - 1, ' ');
    }
    line += fmt::format(" {}", word);
  };
  for (std::size_t begin = 0; begin < description.size();) {
    const auto end = std::min(description.find(' ', begin), description.size());
    add(description.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!last.empty()) add(last);
  return text + line + "\n";
}

std::string own_options() {
  return help_entry("--config FILE", "file with one setting per line, as `lr = 3e-4`") +
         help_entry("--print-config", "print each setting with its origin; do not train") +
         help_entry("--fresh", "start a new run in the next free folder: runs/gpt-2") +
         help_entry("--debug-small", "small model and short run, to test a setup in seconds") +
         help_entry(
             "--profile A:B",
             "profile steps A to B of all ranks: profile.json in the run's folder; A:B,operators "
             "with LibTorch's operators") +
         help_entry("--color WHEN", "auto, always or never", "(default auto)") +
         help_entry("--metrics-port PORT", "serve metrics for Prometheus on 127.0.0.1") +
         help_entry(
             "--nnodes K",
             "train on K nodes: run this command on each of them, with one folder of the run "
             "that all share; -n counts the ranks of one node") +
         help_entry("--node-rank R", "rank of this node, 0 to K-1") +
         help_entry("--rendezvous HOST:PORT",
                    "where the nodes meet; HOST is node 0. The other options of several nodes are "
                    "those of `lockstep run`") +
         help_entry("-h, --help", "print this help");
}

std::string names_in_help(const Setting& setting) {
  auto names = option_of(setting.name);
  if (setting.name == "ranks") names = "-n, " + names;
  if (setting.is_flag) return fmt::format("--[no-]{}", setting.name);
  return fmt::format("{} {}", names, setting.value);
}

std::string default_in_help(const Setting& setting, const TrainConfig& defaults) {
  if (!setting.is_used_by(defaults)) return {};
  auto value = setting.text(defaults);
  if (setting.is_flag) value = value == "true" ? "on" : "off";
  if (setting.value == "D") value = in_words(parse_train_length(setting.name, value));
  return value.empty() ? "" : fmt::format("(default {})", value);
}

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
      "lockstep train MODEL [options]: train a model on all cores or on a GPU\n"
      "\n"
      "Models\n"
      "{}{}{}{}"
      "\n"
      "Options\n"
      "{}"
      "\n"
      "`lockstep train gpt --help` lists the settings of a model.\n"
      "\n"
      "A run is a folder with configuration, checkpoints, metrics and logs. The same\n"
      "command resumes a run that was interrupted.\n"
      "\n"
      "Examples\n"
      "  lockstep train gpt\n"
      "  lockstep train gpt --data my.txt --run runs/mine --time 20min\n"
      "  lockstep train resnet --data fashion-mnist --epochs 5\n",
      help_entry("gpt", "language model: GPT-2 shapes from tiny to 1.5 B, on any text"),
      help_entry("resnet", "ResNet-18 on images of 28 x 28 or 32 x 32"),
      help_entry("mlp", "multilayer perceptron on images or tables"),
      help_entry("transformer", "the encoder of lockstep's benchmarks"), own_options());
}

std::string train_help(ModelKind kind) {
  auto text = fmt::format(
      "lockstep train {} [options]\n"
      "\n"
      "Command\n"
      "{}",
      name_of(kind), own_options());
  const auto defaults = default_config(kind);
  std::string group;
  for (const auto& setting : settings()) {
    if (!setting.is_for(kind)) continue;
    if (setting.group != group) {
      group = setting.group;
      text += fmt::format("\n{}\n", group);
    }
    text += help_entry(names_in_help(setting), setting.help, default_in_help(setting, defaults));
  }
  return text +
         "\n"
         "Give the length of the run by exactly one option; N may end in k, M or B.\n"
         "D is a duration: 100 or 100st (steps), 2ep (epochs), 50Mtok (tokens).\n"
         "A setting can also be given in a file (--config FILE, `lr = 3e-4`) and in the\n"
         "environment (LOCKSTEP_TRAIN_LR). The command line overrides the environment,\n"
         "which overrides the file.\n";
}

}  // namespace lockstep::cli
