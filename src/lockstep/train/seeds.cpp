#include "lockstep/train/seeds.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/env.h>
#include <fmt/format.h>

#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/train/cublas_setting_internal.h"

namespace lockstep {
namespace {

constexpr auto kStepPurpose = random_purpose("train step");

void expect_step(std::int64_t step) {
  if (step < 0)
    throw UsageError(fmt::format("random numbers for step {}: expected 0 or more", step));
}

// LibTorch's seed of a Mersenne twister has 32 bits, too few for steps × ranks: among a hundred
// thousand two are probably equal. So the whole state is drawn.
void fill(at::CPUGeneratorImpl& generator, RandomStream stream) {
  at::mt19937_data_pod data{};
  data.seed_ = stream();
  data.seeded_ = true;
  data.left_ = 1;  // the first number drawn mixes the state
  data.next_ = 0;
  for (std::size_t i = 0; i < data.state_.size(); i += 2) {
    const auto bits = stream();
    data.state_[i] = static_cast<std::uint32_t>(bits);
    data.state_[i + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  generator.set_engine(engine);
  generator.set_next_float_normal_sample({});
  generator.set_next_double_normal_sample({});
}

void fill_defaults(const RandomStream& stream) {
  auto cpu = at::detail::getDefaultCPUGenerator();
  {
    const std::lock_guard lock(cpu.mutex());
    fill(*at::check_generator<at::CPUGeneratorImpl>(cpu), stream);
  }
  // CUDA's generator is a Philox with a 64-bit seed.
  auto draws = stream;
  const auto seed = draws();
  if (!at::hasCUDA()) return;
  const auto num_devices = at::detail::getCUDAHooks().deviceCount();
  for (at::DeviceIndex device = 0; device < num_devices; ++device) {
    auto cuda = at::globalContext().defaultGenerator(at::Device(at::kCUDA, device));
    const std::lock_guard lock(cuda.mutex());
    cuda.set_current_seed(seed);
  }
}

bool cuda_is_in_use() {
  const auto& hooks = at::detail::getCUDAHooks();
  for (at::DeviceIndex device = 0; device < hooks.deviceCount(); ++device) {
    if (hooks.hasPrimaryContext(device)) return true;
  }
  return false;
}

}  // namespace

bool must_set_cublas(const std::optional<std::string>& value, bool cuda_is_in_use) {
  if (value == kDeterministicCublas || value == ":16:8") return false;
  if (!value && !cuda_is_in_use) return true;
  throw UsageError(
      fmt::format("deterministic matrix products on a GPU need {}={}, but it is {}: set it in the "
                  "environment of the program{}",
                  kCublasVariable, kDeterministicCublas,
                  value ? "\"" + *value + "\"" : "not set and CUDA is in use already",
                  value ? "" : ", or construct Deterministic before the first CUDA tensor"));
}

Seeds::Seeds(std::uint64_t seed, SeedsOptions options) : seed_(seed), leaf_(options.leaf) {
  if (leaf_ < 0) throw UsageError(fmt::format("Seeds with leaf {}: expected 0 or more", leaf_));
}

void Seeds::begin_step(std::int64_t step) const {
  expect_step(step);
  fill_defaults(RandomStream({.seed = seed_, .purpose = kStepPurpose},
                             static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(leaf_)));
}

void Seeds::begin_shared(std::string_view purpose, std::int64_t step) const {
  fill_defaults(shared_stream(purpose, step));
}

at::Generator Seeds::shared_generator(std::string_view purpose, std::int64_t step) const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  fill(*at::check_generator<at::CPUGeneratorImpl>(generator), shared_stream(purpose, step));
  return generator;
}

RandomStream Seeds::shared_stream(std::string_view purpose, std::int64_t step) const {
  expect_step(step);
  const auto key = random_purpose("shared: " + std::string(purpose));
  return {{.seed = seed_, .purpose = key}, static_cast<std::uint64_t>(step), 0};
}

std::string Seeds::state_json() const {
  // As text, because many JSON readers convert numbers to doubles.
  return nlohmann::json{{"kind", "seeds"}, {"seed", fmt::format("{}", seed_)}}.dump();
}

void Seeds::load_state_json(std::string_view json) {
  std::string saved;
  try {
    saved = nlohmann::json::parse(json).at("seed").get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not the state of Seeds: {}", error.what()));
  }
  if (saved == fmt::format("{}", seed_)) return;
  throw UsageError(
      fmt::format("the checkpoint was saved with seed {}, and this program has {}: use the saved "
                  "seed to resume",
                  saved, seed_));
}

Deterministic::Deterministic()
    : algorithms_(at::globalContext().deterministicAlgorithms()),
      warn_only_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      cudnn_(at::globalContext().deterministicCuDNN()),
      benchmark_(at::globalContext().benchmarkCuDNN()) {
  if (at::hasCUDA() &&
      must_set_cublas(Environment::of_process().find(kCublasVariable), cuda_is_in_use())) {
    c10::utils::set_env(kCublasVariable, kDeterministicCublas);
  }
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

Deterministic::~Deterministic() {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(algorithms_, warn_only_);
  context.setDeterministicCuDNN(cudnn_);
  context.setBenchmarkCuDNN(benchmark_);
}

}  // namespace lockstep
