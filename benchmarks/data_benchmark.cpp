// The time to produce batches: the order alone, shuffled windows of tokens, normalized images, and
// the same images through torch::data. benchmarks/data_against_python compares them with Python.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/token_windows.h"

namespace {

using namespace lockstep;

constexpr std::int64_t kWindow = 256;
constexpr std::size_t kTokens = 20'000'000;
constexpr std::int64_t kImages = 60'000;
constexpr double kMean = 0.28604;
constexpr double kDeviation = 0.35302;

void native_order(benchmark::State& state) {
  const auto order = Order(state.range(0), {.seed = 1}).epoch(0);
  std::vector<std::int64_t> samples(4096);
  std::int64_t first = 0;
  for (auto _ : state) {
    order.fill(first, samples);
    benchmark::DoNotOptimize(samples.data());
    first = (first + 4096) % (state.range(0) - 4096);
  }
  state.SetItemsProcessed(state.iterations() * 4096);
}
// The second size is the worst case: half of all values are out of range and are permuted again.
BENCHMARK(native_order)->Arg(60'000)->Arg((1 << 20) + 1)->Arg(1'000'000'000);

void run(benchmark::State& state, Loader& loader) {
  std::int64_t samples = 0;
  for (auto _ : state) {
    const auto batch = loader.next();
    benchmark::DoNotOptimize(batch.tensors.data());
    samples += batch.count();
  }
  state.SetItemsProcessed(samples);
}

/// Tokens in a mapped file, as in training: 40 MB, much larger than the caches.
Tokens mapped_tokens() {
  std::mt19937 random(1);
  std::vector<std::uint16_t> tokens(kTokens);
  for (auto& token : tokens) token = static_cast<std::uint16_t>(random() % 50'257);
  std::FILE* file = std::tmpfile();
  constexpr auto bytes = kTokens * sizeof(std::uint16_t);
  if (file == nullptr || std::fwrite(tokens.data(), 1, bytes, file) != bytes) std::abort();
  std::fflush(file);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, ::fileno(file), 0);
  if (memory == MAP_FAILED) std::abort();
  std::fclose(file);
  return {.values = std::span(static_cast<const std::uint16_t*>(memory), kTokens)};
}

void token_batches(benchmark::State& state) {
  const TokenWindows data(mapped_tokens(), {.window = kWindow});
  Loader loader(
      data,
      {.batch = {.local = 32}, .order = {.seed = 1}, .workers = static_cast<int>(state.range(0))});
  run(state, loader);
}
BENCHMARK(token_batches)->Arg(0)->Arg(1)->ArgName("workers")->UseRealTime();

torch::Tensor images() { return torch::randint(0, 256, {kImages, 1, 28, 28}, torch::kByte); }
torch::Tensor labels() { return torch::randint(0, 10, {kImages}); }

void image_batches(benchmark::State& state) {
  const TensorDataset data(
      {{"input", images(), Normalization{{kMean}, {kDeviation}}}, {"target", labels()}});
  Loader loader(
      data,
      {.batch = {.local = 64}, .order = {.seed = 1}, .workers = static_cast<int>(state.range(0))});
  run(state, loader);
}
BENCHMARK(image_batches)->Arg(0)->Arg(1)->ArgName("workers")->UseRealTime();

/// As torch::data::datasets::MNIST, without its files: floats in memory, one view per sample.
class Images : public torch::data::datasets::Dataset<Images> {
 public:
  Images() : images_(images().to(torch::kFloat).div_(255)), labels_(labels()) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {images_[row], labels_[row]};
  }
  std::optional<std::size_t> size() const override { return kImages; }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

void torch_data_image_batches(benchmark::State& state) {
  using namespace torch::data;
  auto data = Images().map(transforms::Normalize<>(kMean, kDeviation)).map(transforms::Stack<>());
  auto loader = make_data_loader<samplers::RandomSampler>(
      std::move(data),
      DataLoaderOptions().batch_size(64).workers(static_cast<std::size_t>(state.range(0))));
  auto iterator = loader->begin();
  std::int64_t samples = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(iterator->data.data_ptr());
    samples += iterator->data.size(0);
    if (++iterator == loader->end()) iterator = loader->begin();
  }
  state.SetItemsProcessed(samples);
}
BENCHMARK(torch_data_image_batches)->Arg(0)->Arg(1)->ArgName("workers")->UseRealTime();

}  // namespace
