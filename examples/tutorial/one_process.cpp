// docs/tutorial.md explains this program and the changes from one file of this folder to the next.
#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(1);
  const auto inputs = torch::randn({4800, 4});
  const auto targets = inputs.sin().sum(1, /*keepdim=*/true);
  torch::nn::Sequential net(torch::nn::Linear(4, 256), torch::nn::Tanh(),
                            torch::nn::Linear(256, 1));
  torch::optim::AdamW optimizer(net->parameters(), 3e-3);

  for (std::int64_t step = 1; step <= 400; ++step) {
    const auto rows = torch::randint(4800, {48}, torch::kLong);
    const auto loss = torch::mse_loss(net->forward(inputs.index({rows})), targets.index({rows}));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    if (step % 100 == 0) {
      const double mean = torch::mse_loss(net->forward(inputs), targets).item<double>();
      std::printf("step %ld: loss over all samples %.6f\n", step, mean);
    }
  }
}
