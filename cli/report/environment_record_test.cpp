#include "cli/report/environment_record.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/json.h"
#include "lockstep/base/version.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class EnvironmentRecordTest : public ::testing::Test {
 protected:
  EnvironmentRecordTest() {
    std::string name = (fs::temp_directory_path() / "environment_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~EnvironmentRecordTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }

  std::string folder_;
};

TEST_F(EnvironmentRecordTest, HasVersionsMachineLimitsAndDigests) {
  write("data.bin", "0123456789");
  const Machine machine{.architecture = "test", .cpu = {.nodes = {{{{{0}}, {{1}}}}}}};
  const Environment environment{{"OMP_NUM_THREADS", "3"}, {"AWS_SECRET_ACCESS_KEY", "hush"}};
  const auto text = environment_json({.command = {"lockstep", "train", "gpt"},
                                      .data = {folder_ + "/data.bin", folder_ + "/missing"},
                                      .ranks = 2},
                                     machine, environment);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["lockstep"]["version"], kVersion);
  EXPECT_EQ(json["command"], "lockstep train gpt");
  EXPECT_EQ(json["processor"]["cores"], 2);
  EXPECT_GT(json["memory"]["total_bytes"], 1 << 20);
  EXPECT_TRUE(json["limits"]["open_files"].is_number() ||
              json["limits"]["open_files"] == "unlimited");
  ASSERT_EQ(json["data"].size(), 1U);
  EXPECT_EQ(json["data"][0]["bytes"], 10);
  EXPECT_EQ(std::stoull(json["data"][0]["digest"].get<std::string>(), nullptr, 16),
            FileBytes::map(folder_ + "/data.bin").data_id());
  EXPECT_EQ(json["variables"], (nlohmann::json{{"OMP_NUM_THREADS", "3"}}));
  EXPECT_EQ(text.find("hush"), std::string::npos);
}

TEST_F(EnvironmentRecordTest, ValuesOfSecretOptionsAreLeftOut) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(command_without_secrets(Words{"run", "./p", "--api-key=abc", "--lr", "3"}),
            "run ./p --api-key=… --lr 3");
  EXPECT_EQ(command_without_secrets(Words{"./p", "--token", "abc", "x"}), "./p --token … x");
  EXPECT_EQ(command_without_secrets(Words{"PASSWORD=abc", "./p"}), "PASSWORD=… ./p");
  EXPECT_EQ(command_without_secrets(
                Words{"--tokens", "5M", "--tokenizer", "bytes", "--secret-file", "f"}),
            "--tokens 5M --tokenizer bytes --secret-file f");
}

TEST_F(EnvironmentRecordTest, TheRevisionIsReadFromTheCheckout) {
  EXPECT_EQ(git_revision(folder_ + "/none"), "");
  const std::string revision(40, 'a');
  const std::string packed(40, 'b');
  write(".git/HEAD", "ref: refs/heads/main\n");
  write(".git/refs/heads/main", revision + "\n");
  write("deep/er/file", "");
  EXPECT_EQ(git_revision(folder_ + "/deep/er"), revision);
  fs::remove(folder_ + "/.git/refs/heads/main");
  write(".git/packed-refs", "# pack-refs\n" + packed + " refs/heads/main\n");
  EXPECT_EQ(git_revision(folder_), packed);
  write(".git/HEAD", revision + "\n");
  EXPECT_EQ(git_revision(folder_), revision);
}

}  // namespace
}  // namespace lockstep::cli
