// A data set of your own: layout() describes a sample, read() writes the requested samples into the
// rows of a batch. The loader adds shuffling, shards per rank, worker threads that read ahead, and
// exact resumption.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

// Points in a square; the label says whether a point lies in a circle.
class Points final : public lockstep::Dataset {
 public:
  std::int64_t size() const override { return 20'000; }
  const lockstep::SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const lockstep::Rows& rows) const override {
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const auto point = rows.row<float>(0, row);
      lockstep::RandomStream random({.seed = 1}, 0, indices[static_cast<std::size_t>(row)]);
      for (auto& value : point) value = static_cast<float>(2 * random.uniform() - 1);
      rows.row<std::int64_t>(1, row)[0] = point[0] * point[0] + point[1] * point[1] < 0.6F ? 1 : 0;
    }
  }
  std::uint64_t id() const override { return 1; }  // choose another number when the data changes
  std::string name() const override { return "points in a square"; }

 private:
  lockstep::SampleLayout layout_{{"input", torch::kFloat, {2}}, {"target", torch::kLong, {}}};
};

int main() {
  const auto world = lockstep::init();
  const Points points;
  lockstep::Loader loader(
      points, {.batch = {.local = 50, .world = world.size()}, .rank = world.rank(), .workers = 1});
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 2));
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  double correct = 0;
  double count = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    correct = count = 0;
    for (const auto& batch : loader.epoch()) {
      optimizer.zero_grad();
      const auto logits = model->forward(batch.input());
      torch::cross_entropy_loss(logits, batch.target()).backward();
      optimizer.step();
      correct += logits.argmax(1).eq(batch.target()).sum().item<double>();
      count += static_cast<double>(batch.count());
    }
    std::printf("rank %d, epoch %d: accuracy %.1f %% of %.0f points\n", world.rank(), epoch,
                100 * correct / count, count);
  }
  return correct / count > 0.9 ? 0 : 1;
}
