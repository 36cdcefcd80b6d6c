// What ranks can do together. Start it plainly for one rank, with `lockstep run` for one a core, or
// under torchrun, srun or mpirun. Every verb is collective: all ranks call it, in the same order.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  const int rank = group.rank();
  const int size = group.size();
  std::printf("rank %d of %d, local rank %d of %d on node %d, %d threads\n", rank, size,
              world.local_rank(), world.local_size(), world.node(), at::get_num_threads());
  group.barrier().wait();

  // The sum of what every rank has, on every rank.
  auto number = torch::tensor(rank + 1.0);
  group.all_reduce(number).wait();

  // Rank 0's weights for all: how replicas of a model begin equal.
  torch::nn::Linear model(8, 1);
  for (auto& parameter : model->parameters()) group.broadcast(parameter).wait();

  // One step of gradient descent on as many different batches as there are ranks. The gradients
  // lie in memory that all ranks of the host have mapped: averaging them copies nothing.
  torch::manual_seed(rank);
  const auto data = torch::randn({64, 8});
  torch::mse_loss(model->forward(data), data.sum(1, /*keepdim=*/true)).backward();
  auto bucket = group.allocate(9 * sizeof(float)).view(torch::kFloat);
  bucket.copy_(torch::cat({model->weight.grad().flatten(), model->bias.grad()}));
  auto work = group.all_reduce(bucket, lockstep::ReduceOp::average, {.name = "gradients"});
  // ... other work could be done here ...
  work.wait();
  const torch::NoGradGuard off;
  model->weight -= 0.1 * bucket.narrow(0, 0, 8).view({1, 8});
  model->bias -= 0.1 * bucket.narrow(0, 8, 1);

  // Replicas that began equal and made the same step are equal, to the last bit.
  auto weights = torch::empty({size, 8});
  group.all_gather(weights, model->weight).wait();
  const bool equal = weights.equal(weights[0].expand_as(weights));

  // A message to the next rank in a ring, and a group of every second rank.
  auto from = torch::tensor(-1);
  auto send = group.send(torch::tensor(rank), (rank + 1) % size);
  group.receive(from, (rank + size - 1) % size).wait();
  send.wait();
  const auto half = group.split(/*color=*/rank % 2);

  if (rank == 0) {
    std::printf("lockstep %s on LibTorch %s, engine %s\n", lockstep::kVersion, TORCH_VERSION,
                group.backend().c_str());
    std::printf("1 + 2 + ... + %d = %.0f; a message came from rank %d; even ranks: %d\n", size,
                number.item<double>(), from.item<int>(), half.size());
    std::printf("after one averaged step the %d replicas are %s\n", size,
                equal ? "equal, bit for bit" : "NOT equal");
  }
  return equal ? 0 : 1;
}
