// What ranks do together. Started directly it is one rank; `lockstep run` starts one rank per core;
// torchrun, srun and mpirun work too. Every call on the group is collective: all ranks make the
// same calls in the same order.
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

  // All-reduce: the sum of every rank's tensor, on every rank.
  auto number = torch::tensor(rank + 1.0);
  group.all_reduce(number).wait();

  // Broadcast: every rank gets rank 0's weights, so all replicas of the model start equal.
  torch::nn::Linear model(8, 1);
  for (auto& parameter : model->parameters()) group.broadcast(parameter).wait();

  // One step of gradient descent. Each rank has its own batch. The gradients lie in registered
  // memory, which all ranks of the host have mapped: averaging them copies nothing.
  torch::manual_seed(rank);
  const auto data = torch::randn({64, 8});
  torch::mse_loss(model->forward(data), data.sum(1, /*keepdim=*/true)).backward();
  auto bucket = group.allocate(9 * sizeof(float)).view(torch::kFloat);
  bucket.copy_(torch::cat({model->weight.grad().flatten(), model->bias.grad()}));
  auto work = group.all_reduce(bucket, lockstep::ReduceOp::average, {.name = "gradients"});
  // ... the rank can compute something else here ...
  work.wait();
  const torch::NoGradGuard no_grad;
  model->weight -= 0.1 * bucket.narrow(0, 0, 8).view({1, 8});
  model->bias -= 0.1 * bucket.narrow(0, 8, 1);

  // Replicas that start equal and make the same step stay bitwise equal.
  auto weights = torch::empty({size, 8});
  group.all_gather(weights, model->weight).wait();
  const bool equal = weights.equal(weights[0].expand_as(weights));

  // Point to point: each rank sends its number to the next rank of a ring. Then split() makes two
  // groups, the even and the odd ranks.
  auto sender = torch::tensor(-1);
  auto send = group.send(torch::tensor(rank), (rank + 1) % size);
  group.receive(sender, (rank + size - 1) % size).wait();
  send.wait();
  const auto half_group = group.split(/*color=*/rank % 2);

  if (rank == 0) {
    std::printf("lockstep %s on LibTorch %s, backend %s\n", lockstep::kVersion, TORCH_VERSION,
                group.backend().c_str());
    std::printf("1 + 2 + ... + %d = %.0f; message received from rank %d; even ranks: %d\n", size,
                number.item<double>(), sender.item<int>(), half_group.size());
    std::printf("after one step with averaged gradients the %d replicas are %s\n", size,
                equal ? "bitwise equal" : "NOT equal");
  }
  return equal ? 0 : 1;
}
