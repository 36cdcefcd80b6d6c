#include "cli/generate/program/generate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/testing/watchdog.h"
#include "models/gpt_generation.h"

namespace lockstep::cli {
namespace {

constexpr models::GptOptions kShape{
    .vocabulary = 256, .context = 32, .layers = 2, .heads = 2, .width = 32};

// The weights that the run has at `step`.
models::Gpt net_of_step(int step) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  models::Gpt net(kShape);
  const torch::NoGradGuard no_gradients;
  for (auto& weight : net->parameters()) weight.mul_(8);  // so that texts differ
  return net;
}

std::string base64(int byte) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return {letters[static_cast<std::size_t>(byte >> 2)],
          letters[static_cast<std::size_t>((byte & 3) << 4)], '=', '='};
}

std::vector<Given> shape_with(const std::string& layers) {
  return {{"layers", layers, "test"},
          {"heads", "2", "test"},
          {"width", "32", "test"},
          {"context", "32", "test"}};
}

// A run of three steps, the second of them the best.
class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() {
    torch::set_num_threads(1);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(run_);
    configure("2");
    auto net = net_of_step(0);
    lockstep::Run run(World::alone(), run_,
                      {.save_every = 1, .log = Log({.level = LogLevel::error})});
    run.track("model", net);
    (void)run.resume();
    for (int step = 1; step <= 3; ++step) {
      const torch::NoGradGuard no_gradients;
      const auto wanted = net_of_step(step);
      for (const auto& named : wanted->named_parameters()) {
        net->named_parameters()[named.key()].copy_(named.value());
      }
      StepEnd end;
      if (step == 2) end.keep_as = {"best"};
      (void)run.end_of_step(end);
    }
    run.finish();
  }
  ~GenerateTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void configure(const std::string& layers) const {
    write_config(run_, {.resolved = resolve(ModelKind::gpt, shape_with(layers)),
                        .files = {.tokenizer = "bytes", .vocabulary = 256},
                        .world = 1});
  }

  struct Answer {
    int code = -1;
    std::string out;
    std::string error;
  };

  [[nodiscard]] Answer ask(const std::string& arguments) const {
    const auto command = std::string("'") + LOCKSTEP_COMMAND + "' generate " + arguments + " >'" +
                         folder_ + "/out' 2>'" + folder_ + "/error'";
    const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
    return {WEXITSTATUS(status), contents(folder_ + "/out"), contents(folder_ + "/error")};
  }

  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The text of the weights of `step` after `prompt`, by plain loops.
  static std::string text_of(int step, const std::string& prompt,
                             const models::GenerationOptions& options, int count) {
    const std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
    models::GptGeneration generation(net_of_step(step), tokens, options);
    auto text = prompt;
    for (int i = 0; i < count; ++i) text += static_cast<char>(generation.next());
    return text;
  }

  const testing::Watchdog watchdog_{std::chrono::seconds(120), [] { return "a generation"; }};
  const std::string folder_ = ::testing::TempDir() + "lockstep_generate_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                              "_" + std::to_string(::getpid());
  const std::string run_ = folder_ + "/run";
};

TEST_F(GenerateTest, TheCommandWritesTheTextOfTheBestCheckpoint) {
  const auto answer = ask("--run '" + run_ + "' --prompt 'To be' --tokens 50 --seed 9 -k 7 -t 0.5");
  EXPECT_EQ(answer.code, 0) << answer.error;
  EXPECT_EQ(answer.out,
            text_of(2, "To be", {.temperature = 0.5, .top_k = 7, .seed = 9}, 50) + "\n");
  EXPECT_NE(answer.error.find("step 2 (best)"), std::string::npos) << answer.error;
  EXPECT_NE(answer.error.find("50 tokens"), std::string::npos) << answer.error;
}

TEST_F(GenerateTest, AnyCheckpointCanBeChosen) {
  for (const auto& [word, step] : {std::pair{"last", 3}, {"best", 2}, {"1", 1}, {"", 2}}) {
    const auto trained = load_trained_gpt({.run = run_, .prompt = "x", .checkpoint = word});
    EXPECT_EQ(trained.step, step) << word;
    const auto wanted = net_of_step(step);
    for (const auto& named : wanted->named_parameters()) {
      EXPECT_TRUE(named.value().equal(trained.net->named_parameters()[named.key()]));
    }
  }
}

TEST_F(GenerateTest, ADamagedCheckpointIsSkippedWithAMessage) {
  std::fstream(run_ + "/checkpoints/step-3/model.safetensors",
               std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load_trained_gpt({.run = run_, .prompt = "x", .checkpoint = "last"}).step, 2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("step-3"), std::string::npos);
  EXPECT_THROW((void)load_trained_gpt({.run = run_, .prompt = "x", .checkpoint = "3"}), UsageError);
}

TEST_F(GenerateTest, AMissingStepIsAnsweredWithTheExistingSteps) {
  const auto answer = ask("--run '" + run_ + "' --prompt x --checkpoint 7");
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.error.find("steps 3, 2, 1"), std::string::npos) << answer.error;
}

TEST_F(GenerateTest, WeightsOfAnotherShapeThanTheConfigurationAreNamed) {
  configure("3");
  const auto answer = ask("--run '" + run_ + "' --prompt x");
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.error.find("h.2."), std::string::npos) << answer.error;
}

TEST_F(GenerateTest, AnInvalidRequestIsRefusedBeforeLibTorchIsLoaded) {
  EXPECT_EQ(ask("--run '" + run_ + "' --prompt ''").code, 2);
  const auto answer = ask("--run '" + folder_ + "/nowhere' --prompt x");
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.out, "");
  EXPECT_NE(answer.error.find("lockstep train gpt"), std::string::npos) << answer.error;
}

TEST_F(GenerateTest, TheEndOfTextTokenEndsTheText) {
  // A vocabulary of the 256 bytes, without merges, and <|endoftext|>.
  const auto table = folder_ + "/tiny.tiktoken";
  {
    std::ofstream lines(table);
    for (int byte = 0; byte < 256; ++byte) lines << base64(byte) << ' ' << byte << '\n';
  }
  TrainedGpt trained{.net = nullptr, .tokenizer = open_tokenizer(table)};
  auto shape = kShape;
  shape.vocabulary = trained.tokenizer->vocabulary_size();
  const auto last = trained.tokenizer->end_of_text();
  ASSERT_TRUE(last);
  shape.head = models::GptHead::separate;
  trained.net = models::Gpt(shape);
  {
    // The last norm gives a constant, for which the head's row of end of text has the largest
    // logit.
    const torch::NoGradGuard no_gradients;
    auto weights = trained.net->named_parameters();
    weights["ln_f.weight"].zero_();
    weights["ln_f.bias"].fill_(1);
    weights["lm_head.weight"].zero_();
    weights["lm_head.weight"][static_cast<std::int64_t>(*last)].fill_(1);
  }
  std::string text;
  const auto report = generate(
      trained, {.prompt = "ab", .temperature = 0, .num_tokens = 10},
      {.show = [&](std::string_view piece) { text += piece; }, .wants_more = [] { return true; }});
  EXPECT_EQ(report.end, GenerationEnd::of_text);
  EXPECT_EQ(report.num_tokens, 1);
  EXPECT_EQ(text, "ab");
}

TEST_F(GenerateTest, AnInterruptEndsTheTextWithItsLine) {
  const auto out = folder_ + "/out";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    ::execl(LOCKSTEP_COMMAND, "lockstep", "generate", "--run", run_.c_str(), "--prompt", "To be",
            "--tokens", "100000000", nullptr);
    ::_exit(127);
  }
  // The text is written while it is generated.
  while (contents(out).size() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  const auto text = contents(out);
  EXPECT_EQ(text.substr(0, 5), "To be");
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace lockstep::cli
