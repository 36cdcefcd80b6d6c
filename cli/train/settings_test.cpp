#include "cli/train/settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "cli/train/options.h"
#include "cli/train/saved_config.h"
#include "cli/train/settings_check.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

std::string refusal(ModelKind kind, const std::vector<Given>& given) {
  try {
    (void)resolve(kind, given);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Settings, NamesAreUniqueAndValuesComeBackAsTheyWereSpelled) {
  std::set<std::string> names;
  for (const auto kind :
       {ModelKind::gpt, ModelKind::resnet, ModelKind::mlp, ModelKind::transformer}) {
    const auto config = default_config(kind);
    for (const auto& setting : settings()) {
      if (!setting.is_used_by(config)) continue;
      auto again = config;
      setting.set(again, setting.text(config));
      EXPECT_EQ(again, config) << setting.name;
    }
  }
  for (const auto& setting : settings()) EXPECT_TRUE(names.insert(setting.name).second);
}

TEST(Settings, TheLastValueCountsAndItsOriginIsKept) {
  const auto resolved = resolve(ModelKind::gpt, {{"lr", "1", "file"}, {"lr", "2", "--lr"}});
  EXPECT_EQ(resolved.config.lr, 2);
  EXPECT_EQ(resolved.origins.at("lr"), "--lr");
  EXPECT_EQ(resolved.origins.at("batch"), "default");
}

TEST(Settings, ASizeGivesTheShapeUnlessItIsGiven) {
  const auto resolved =
      resolve(ModelKind::gpt, {{"layers", "3", "--layers"}, {"size", "small", "--size"}});
  EXPECT_EQ(resolved.config.width, 768);
  EXPECT_EQ(resolved.config.layers, 3);
  EXPECT_EQ(resolved.origins.at("width"), "size small");
  EXPECT_EQ(resolved.origins.at("layers"), "--layers");
}

// A run of an earlier build may have such a configuration: it loads, and only a new run is refused.
TEST(Settings, ANewRunThatWouldCompressNothingIsRefused) {
  const auto with_steps = [](const char* steps) {
    return resolve(ModelKind::gpt, {{"compress", "powersgd", ""}, {"steps", steps, ""}}).config;
  };
  try {
    check_new_run(with_steps("600"));
    FAIL() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("Give --powersgd-start 60, or more --steps"),
              std::string::npos);
  }
  check_new_run(with_steps("1001"));
}

TEST(Settings, AnInvalidValueIsRefusedByName) {
  EXPECT_NE(refusal(ModelKind::gpt, {{"wamrup", "1", "a.toml"}}).find("did you mean warmup?"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"hidden", "8", "a.toml"}}).find("not a setting of gpt"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"width", "100", ""}, {"heads", "3", ""}}).find("--width 102"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"save-every", "5min", ""}}).find("--save-every"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"time", "5min", ""}, {"schedule", "cosine", ""}})
                .find("--schedule"),
            std::string::npos);
  for (const auto* name : {"lr", "batch", "layers"}) {
    EXPECT_NE(refusal(ModelKind::gpt, {{name, "0", ""}}).find(name), std::string::npos);
    EXPECT_NE(refusal(ModelKind::gpt, {{name, "many", ""}}).find(name), std::string::npos);
  }
}

TEST(TrainOptions, CommandLineBeatsEnvironment) {
  const auto options =
      read_train_options({"gpt", "--lr", "2", "--no-tensorboard", "-n", "3"},
                         {{"LOCKSTEP_TRAIN_LR", "1"}, {"LOCKSTEP_TRAIN_WEIGHT_DECAY", "0.5"}});
  const auto resolved = resolve(options.model, options.given);
  EXPECT_EQ(resolved.config.lr, 2);
  EXPECT_EQ(resolved.config.weight_decay, 0.5);
  EXPECT_EQ(resolved.origins.at("weight-decay"), "LOCKSTEP_TRAIN_WEIGHT_DECAY");
  EXPECT_FALSE(resolved.config.tensorboard);
  EXPECT_EQ(resolved.config.ranks, "3");
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainOptions, OneSourceGivesTheLengthOnceAndALaterSourceReplacesIt) {
  EXPECT_EQ(refusal([] {
              (void)read_train_options({"gpt", "--steps", "5", "--epochs", "2"}, {});
            }),
            "--steps and --epochs are given: each is the length of the run; give exactly one of "
            "steps, epochs, tokens and time");
  EXPECT_EQ(refusal([] {
              (void)read_train_options(
                  {"gpt"}, {{"LOCKSTEP_TRAIN_TOKENS", "5M"}, {"LOCKSTEP_TRAIN_TIME", "2min"}});
            }).substr(0, 49),
            "LOCKSTEP_TRAIN_TOKENS and LOCKSTEP_TRAIN_TIME are");
  const auto options =
      read_train_options({"gpt", "--epochs", "2"}, {{"LOCKSTEP_TRAIN_STEPS", "5"}});
  const auto resolved = resolve(options.model, options.given);
  EXPECT_EQ(resolved.config.length, (TrainLength{2, TrainLength::Unit::epochs}));
  EXPECT_EQ(resolved.origins.at("epochs"), "--epochs");
  EXPECT_FALSE(resolved.origins.contains("steps"));
}

TEST(TrainOptions, HelpFits80ColumnsAndStatesADefaultPerSetting) {
  for (const auto kind :
       {ModelKind::gpt, ModelKind::resnet, ModelKind::mlp, ModelKind::transformer}) {
    std::istringstream help(train_help(kind) + train_help());
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 80U) << line;
    for (const auto& setting : settings()) {
      if (!setting.is_used_by(default_config(kind))) continue;
      const auto text = train_help(kind);
      // The description of a long name begins on the next line.
      const auto name = fmt::format(" --{}{}", setting.is_flag ? "[no-]" : "", setting.name);
      const auto begin = std::min(text.find(name + " "), text.find(name + "\n"));
      ASSERT_NE(begin, std::string::npos) << setting.name;
      EXPECT_LT(text.find("(default", begin), text.find("\n  -", begin)) << setting.name;
    }
  }
}

TEST(SavedConfig, ComesBackWhole) {
  SavedConfig saved{.resolved = resolve(ModelKind::mlp, {{"hidden", "5,6", "--hidden"}}),
                    .files = {.name = "x", .training = {"a", "b"}, .vocabulary = 7},
                    .world = 3};
  const auto again = saved_config_from_json(to_json(saved), "here");
  EXPECT_EQ(again.resolved.config, saved.resolved.config);
  EXPECT_EQ(again.resolved.origins, saved.resolved.origins);
  EXPECT_EQ(again.files, saved.files);
  EXPECT_EQ(again.world, 3);
  EXPECT_NE(to_json(saved).find("\"validation\""), std::string::npos);
  EXPECT_THROW((void)saved_config_from_json("{}", "here"), UsageError);
  EXPECT_THROW((void)saved_config_from_json("[", "here"), UsageError);
}

TEST(SavedConfig, OnlySettingsThatTheResultDependsOnCountAsADifference) {
  const SavedConfig saved{.resolved = resolve(ModelKind::gpt, {})};
  const auto free = resolve(ModelKind::gpt, {{"steps", "900", ""}, {"ranks", "7", ""}}).config;
  EXPECT_TRUE(differences(saved, free).empty());
  const auto other = resolve(ModelKind::gpt, {{"lr", "7", ""}, {"seed", "9", ""}}).config;
  EXPECT_EQ(differences(saved, other),
            (std::vector<std::string>{"--lr 0.002, not 7", "--seed 1, not 9"}));
}

}  // namespace
}  // namespace lockstep::cli
