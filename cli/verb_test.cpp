#include "cli/verb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lockstep/base/json.h"
#include "lockstep/base/version.h"

namespace lockstep::cli {
namespace {

struct Answer {
  int code;
  std::string out;
  std::string error;
};

Answer ask(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream error;
  const int code = dispatch(arguments, {.out = out, .error = error});
  return {code, out.str(), error.str()};
}

TEST(Command, VersionIsOneLine) {
  const auto answer = ask({"--version"});
  EXPECT_EQ(answer.code, kSuccess);
  EXPECT_EQ(answer.out, std::string("lockstep ") + kVersion + "\n");
}

TEST(Command, HelpFitsAScreenAndNamesEveryVerb) {
  const auto answer = ask({"--help"});
  EXPECT_EQ(answer.code, kSuccess);
  EXPECT_LE(std::ranges::count(answer.out, '\n'), 24);
  for (const auto& verb : verbs()) EXPECT_NE(answer.out.find(verb.name), std::string::npos);
}

TEST(Command, EveryVerbExplainsItself) {
  for (const auto& verb : verbs()) {
    const auto answer = ask({"help", std::string(verb.name)});
    EXPECT_EQ(answer.code, kSuccess) << verb.name;
    EXPECT_FALSE(answer.out.empty()) << verb.name;
  }
}

TEST(Command, EveryHelpFits80Columns) {
  // Characters, not bytes: "…" has three.
  const auto is_first_byte = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  };
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help"},
                                                {"train", "--help"},
                                                {"run", "--help"},
                                                {"report", "--help"},
                                                {"generate", "--help"},
                                                {"data", "--help"},
                                                {"data", "inspect", "--help"},
                                                {"data", "tokenize", "--help"},
                                                {"data", "fetch", "--help"},
                                                {"ckpt", "--help"},
                                                {"version", "--help"}}) {
    std::istringstream help(ask(words).out);
    for (std::string line; std::getline(help, line);) {
      EXPECT_LE(std::ranges::count_if(line, is_first_byte), 80) << line;
    }
  }
}

TEST(Command, AnUnknownVerbGetsTheNearestMatch) {
  const auto answer = ask({"verison"});
  EXPECT_EQ(answer.code, kUsage);
  EXPECT_EQ(answer.error,
            "lockstep: \"verison\" is not a verb; did you mean \"version\"? "
            "`lockstep --help` lists the verbs.\n");
}

TEST(Command, AnUnknownSubVerbGetsTheNearestMatchToo) {
  EXPECT_EQ(ask({"bench"}).code, kUsage);
  EXPECT_EQ(ask({"bench", "--help"}).out.find("comm-rank"), std::string::npos);
  const auto answer = ask({"bench", "com"});
  EXPECT_EQ(answer.code, kUsage);
  EXPECT_NE(answer.error.find("did you mean \"comm\"?"), std::string::npos);
}

TEST(Command, AWordNearNothingIsNamedWithoutAGuess) {
  EXPECT_EQ(ask({"deploy"}).error,
            "lockstep: \"deploy\" is not a verb. `lockstep --help` lists the verbs.\n");
}

TEST(Command, NoArgumentsShowHelpAndFail) {
  const auto answer = ask({});
  EXPECT_EQ(answer.code, kUsage);
  EXPECT_NE(answer.out.find("lockstep <verb>"), std::string::npos);
}

TEST(Command, AnUnknownOptionOfAVerbIsAUsageError) {
  const auto answer = ask({"version", "--jsn"});
  EXPECT_EQ(answer.code, kUsage);
  EXPECT_NE(answer.error.find("--jsn"), std::string::npos);
}

TEST(Command, VersionAsJsonIsOneObject) {
  const auto facts = nlohmann::json::parse(ask({"version", "--json"}).out);
  EXPECT_EQ(facts["lockstep"], kVersion);
  EXPECT_TRUE(facts["cuda"].is_boolean());
}

TEST(Report, NamesTheVerbAndReturnsAnotherCodeForUsageErrors) {
  std::ostringstream out;
  EXPECT_EQ(report("data fetch", UsageError("no such name"), out), kUsage);
  EXPECT_EQ(report("run", SystemError("cannot fork", EAGAIN), out), kFailure);
  EXPECT_EQ(report("run", SystemError("cannot fork", EAGAIN), out, 70), 70);
  EXPECT_EQ(report("run", UsageError("no program"), out, 70), kUsage);
  EXPECT_TRUE(out.str().starts_with("lockstep data fetch: no such name\nlockstep run: cannot fork"))
      << out.str();
}

}  // namespace
}  // namespace lockstep::cli
