#include "cli/train/settings.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/train/options.h"
#include "cli/train/saved_config.h"
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
      auto again = config;
      setting.set(again, setting.text(config));
      EXPECT_EQ(again, config) << setting.name;
    }
  }
  for (const auto& setting : settings()) EXPECT_TRUE(names.insert(setting.name).second);
}

TEST(Settings, LaterOnesWinAndTheOriginIsKept) {
  const auto resolved = resolve(ModelKind::gpt, {{"rate", "1", "file"}, {"rate", "2", "--rate"}});
  EXPECT_EQ(resolved.config.rate, 2);
  EXPECT_EQ(resolved.origins.at("rate"), "--rate");
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

TEST(Settings, WhatCannotBeIsRefusedByName) {
  EXPECT_NE(refusal(ModelKind::gpt, {{"raet", "1", "a.toml"}}).find("did you mean rate?"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"hidden", "8", "a.toml"}}).find("not a setting of gpt"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"width", "100", ""}, {"heads", "3", ""}}).find("--width 102"),
            std::string::npos);
  EXPECT_NE(refusal(ModelKind::gpt, {{"save-every", "5min", ""}}).find("--save-every"),
            std::string::npos);
  EXPECT_NE(
      refusal(ModelKind::gpt, {{"for", "5min", ""}, {"schedule", "cosine", ""}}).find("--schedule"),
      std::string::npos);
  for (const auto* name : {"rate", "batch", "layers"}) {
    EXPECT_NE(refusal(ModelKind::gpt, {{name, "0", ""}}).find(name), std::string::npos);
    EXPECT_NE(refusal(ModelKind::gpt, {{name, "many", ""}}).find(name), std::string::npos);
  }
}

TEST(TrainOptions, CommandLineBeatsEnvironment) {
  const auto options =
      read_train_options({"gpt", "--rate", "2", "--no-tensorboard", "-n", "3"},
                         {{"LOCKSTEP_TRAIN_RATE", "1"}, {"LOCKSTEP_TRAIN_WEIGHT_DECAY", "0.5"}});
  const auto resolved = resolve(options.model, options.given);
  EXPECT_EQ(resolved.config.rate, 2);
  EXPECT_EQ(resolved.config.weight_decay, 0.5);
  EXPECT_EQ(resolved.origins.at("weight-decay"), "LOCKSTEP_TRAIN_WEIGHT_DECAY");
  EXPECT_FALSE(resolved.config.tensorboard);
  EXPECT_EQ(resolved.config.ranks, "3");
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
  EXPECT_THROW((void)saved_config_from_json("{}", "here"), UsageError);
  EXPECT_THROW((void)saved_config_from_json("[", "here"), UsageError);
}

TEST(SavedConfig, OnlyWhatDecidesAResultCountsAsADifference) {
  const SavedConfig saved{.resolved = resolve(ModelKind::gpt, {})};
  const auto free = resolve(ModelKind::gpt, {{"for", "900st", ""}, {"ranks", "7", ""}}).config;
  EXPECT_TRUE(differences(saved, free).empty());
  const auto other = resolve(ModelKind::gpt, {{"rate", "7", ""}, {"seed", "9", ""}}).config;
  EXPECT_EQ(differences(saved, other),
            (std::vector<std::string>{"--rate 0.002, not 7", "--seed 1, not 9"}));
}

}  // namespace
}  // namespace lockstep::cli
