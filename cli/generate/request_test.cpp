#include "cli/generate/request.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words& words) {
  try {
    (void)read_generate_request(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(GenerateRequest, APromptIsEnough) {
  const auto request = read_generate_request({"--prompt", "To be"});
  EXPECT_EQ(request.prompt, "To be");
  EXPECT_EQ(request.run, "runs/gpt");
  EXPECT_EQ(request.checkpoint, "");
}

TEST(GenerateRequest, EveryOptionIsRead) {
  const auto request = read_generate_request(
      {"--run", "runs/mine", "--prompt", "-x", "--temperature", "0", "--top-k", "5", "--tokens",
       "7", "--seed", "9223372036854775807", "--checkpoint", "300", "--device", "cuda"});
  EXPECT_EQ(request.run, "runs/mine");
  EXPECT_EQ(request.prompt, "-x");
  EXPECT_EQ(request.temperature, 0);
  EXPECT_EQ(request.top_k, 5);
  EXPECT_EQ(request.num_tokens, 7);
  EXPECT_EQ(request.seed, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(request.checkpoint, "300");
  EXPECT_EQ(request.device, TrainDevice::cuda);
}

TEST(GenerateRequest, AnInvalidValueIsNamed) {
  EXPECT_NE(refusal({}).find("--prompt"), std::string::npos);
  EXPECT_NE(refusal({"--prompt", ""}).find("--prompt"), std::string::npos);
  for (const auto& [option, value] : {std::pair{"--temperature", "-1"},
                                      {"--temperature", "nan"},
                                      {"--top-k", "-1"},
                                      {"--tokens", "0"},
                                      {"--tokens", "many"},
                                      {"--seed", "-1"},
                                      {"--device", "gpu"},
                                      {"--checkpoint", "bets"}}) {
    EXPECT_NE(refusal({"--prompt", "x", option, value}).find(option), std::string::npos)
        << option << ' ' << value << ": " << refusal({"--prompt", "x", option, value});
  }
  EXPECT_NE(refusal({"--prompt", "x", "--temprature", "1"}).find("did you mean --temperature"),
            std::string::npos);
}

TEST(GenerateRequest, HelpFitsAScreen) {
  EXPECT_TRUE(read_generate_request({"--help"}).help);
  const auto help = generate_help();
  EXPECT_LE(std::ranges::count(help, '\n'), 24);
  EXPECT_NE(help.find("runs/gpt"), std::string::npos);
}

TEST(GenerateRequest, AFolderThatIsNotARunOfAGptIsRefusedWithTheNextStep) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("lockstep_generate_request_" + std::to_string(::getpid()));
  const auto words = [&] {
    try {
      (void)config_of({.run = folder});
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(words().find("lockstep train gpt"), std::string::npos) << words();
  std::filesystem::create_directories(folder);
  EXPECT_NE(words().find("config.json"), std::string::npos) << words();
  write_config(folder, {.resolved = resolve(ModelKind::mlp, {}), .files = {}, .world = 1});
  EXPECT_NE(words().find("a run of mlp"), std::string::npos) << words();
  write_config(folder, {.resolved = resolve(ModelKind::gpt, {}), .files = {}, .world = 1});
  EXPECT_EQ(words(), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::cli
