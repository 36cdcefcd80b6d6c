// Names and files of version 0.1; tests/old_runs/README.md tells how the run was made.
#include "cli/train/old_spellings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>

#include "cli/train/options.h"
#include "cli/train/saved_config.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {
namespace {

const std::string kRun = LOCKSTEP_OLD_RUN;

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(OldSpellings, ANameOfVersion01IsRefusedWithItsNewName) {
  EXPECT_EQ(refusal([] {
              (void)read_train_options(
                  {"gpt", "--rate", "1", "--clip=2", "--for", "5st", "--held-out", "0"}, {});
            }),
            "--rate is now --lr; --clip is now --max-grad-norm; --for is now --steps or --epochs "
            "or --tokens or --time; --held-out is now --val-fraction; `lockstep train gpt --help` "
            "lists the options");
  EXPECT_EQ(refusal([] {
              (void)read_train_options({"gpt"}, {{"LOCKSTEP_TRAIN_RATE_FLOOR", "0"}});
            }),
            "LOCKSTEP_TRAIN_RATE_FLOOR is now LOCKSTEP_TRAIN_MIN_LR_RATIO in the environment");
}

TEST(OldSpellings, NoOldNameIsASettingAndEveryNewNameIs) {
  for (const auto* name : {"rate", "rate-scaling", "rate-batch", "rate-floor", "clip", "accumulate",
                           "held-out", "evaluate-every", "evaluate-batches", "for"}) {
    const auto* old = try_old_setting(name);
    ASSERT_NE(old, nullptr) << name;
    EXPECT_THROW((void)find_setting(ModelKind::gpt, name, ""), UsageError) << name;
    for (const auto new_name : old->new_names) {
      EXPECT_EQ(find_setting(ModelKind::gpt, new_name, "").name, new_name);
    }
  }
  for (const auto& setting : settings()) EXPECT_EQ(try_old_setting(setting.name), nullptr);
}

TEST(OldSpellings, AConfigurationOfVersion01IsReadUnderTodaysNames) {
  const auto saved = read_config(kRun);
  const auto& config = saved.resolved.config;
  EXPECT_EQ(config.lr, 0.002);
  EXPECT_EQ(config.lr_scaling, LrScaling::linear);
  EXPECT_EQ(config.base_batch_size, 16);
  EXPECT_EQ(config.min_lr_ratio, 0.2);
  EXPECT_EQ(config.max_grad_norm, 0.5);
  EXPECT_EQ(config.grad_accum, 2);
  EXPECT_EQ(config.val_fraction, 0.1);
  EXPECT_EQ(config.eval_every, (TrainLength{100, TrainLength::Unit::steps}));
  EXPECT_EQ(config.eval_batches, 0);
  EXPECT_EQ(config.length, (TrainLength{1200, TrainLength::Unit::steps}));
  EXPECT_EQ(saved.resolved.origins.at("lr"), "train.toml");
  EXPECT_EQ(saved.resolved.origins.at("steps"), "train.toml");
  EXPECT_EQ(saved.world, 2);
  // Written and read again, it is the same under the new names.
  const auto again = saved_config_from_json(to_json(saved), "again");
  EXPECT_EQ(again.resolved.config, config);
  EXPECT_EQ(again.resolved.origins, saved.resolved.origins);
  EXPECT_EQ(again.files, saved.files);
}

TEST(OldSpellings, ATimeAndAnOptionAsOriginAreTranslatedToo) {
  auto json = nlohmann::ordered_json::parse(std::ifstream(kRun + "/config.json"));
  json["settings"]["for"]["value"] = "90s";
  json["settings"]["schedule"]["value"] = "constant";
  json["settings"]["rate"]["origin"] = "--rate";
  json["data"]["held_out"] = {"b"};
  const auto saved = saved_config_from_json(json.dump(), "here");
  EXPECT_EQ(saved.resolved.config.length, (TrainLength{90, TrainLength::Unit::seconds}));
  EXPECT_EQ(saved.resolved.origins.at("lr"), "--lr");
  EXPECT_EQ(saved.files.validation, std::vector<std::string>{"b"});
}

TEST(OldSpellings, TheConfigurationThatACheckpointNotesIsTheSameUnderTodaysNames) {
  const auto manifest =
      nlohmann::json::parse(std::ifstream(kRun + "/checkpoints/step-385/manifest.json"));
  const auto noted = noted_configuration_with_new_names(manifest.at("configuration").dump());
  EXPECT_EQ(nlohmann::json::parse(noted), nlohmann::json::parse(deciding_json(read_config(kRun))));
  EXPECT_EQ(noted_configuration_with_new_names("7"), "7");
}

TEST(OldSpellings, MetricsOfVersion01AreReadUnderTodaysNames) {
  const auto rows = read_metrics(kRun + "/metrics.jsonl", {.renamed = renamed_metrics()});
  std::map<std::int64_t, double> rates;
  for (const auto& row : rows) {
    for (const auto& metric : row.metrics) {
      EXPECT_NE(metric.name, "rate");
      if (metric.name == "lr") rates[row.step] = std::get<double>(metric.value);
    }
  }
  EXPECT_EQ(rates.size(), 8U);
  EXPECT_EQ(rates.at(1), 0.0001);
  EXPECT_EQ(rates.at(350), 0.0017122331996421364);
}

}  // namespace
}  // namespace lockstep::cli
