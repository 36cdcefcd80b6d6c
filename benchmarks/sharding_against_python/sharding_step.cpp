// One rank of the training steps that compare.py times beside Python's:
//   sharding_step mlp WIDTH BATCH | transformer LENGTH BATCH
// Reads lines "way steps" from standard input and prints, for each, the seconds that the steps took
// and the last loss. Ways: `floor` runs forward and backward alone, without other ranks and without
// an optimizer; `ddp` trains with plain Ddp and lockstep's AdamW; `optimizer` with the same and
// Shard::optimizer; `per_host` with Copies::per_host too; `gradients` with Shard::gradients and one
// copy per host.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "../ddp_against_python/subject.h"
#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;

struct Trained {
  Trained(Subject made, const ProcessGroup& group, const DdpOptions& options)
      : subject(std::move(made)),
        ddp(*subject.model, group, options),
        optimizer(ddp.flat(), {.lr = 1e-4}) {}

  double step() {
    const at::Tensor loss = subject.loss();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss.item<double>();
  }

  Subject subject;
  Ddp ddp;
  AdamW optimizer;
};

double backward_alone(const Subject& subject) {
  const at::Tensor loss = subject.loss();
  loss.backward();
  subject.model->zero_grad();
  return loss.item<double>();
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  if (num_arguments != 4) {
    std::fputs("usage: sharding_step mlp WIDTH BATCH | transformer LENGTH BATCH\n", stderr);
    return 2;
  }
  const SubjectOptions options{arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3])};
  at::set_num_threads(1);
  ProcessGroup group(world);
  const auto alone = make_subject(options, group.rank());
  std::map<std::string, std::unique_ptr<Trained>> trained;
  const auto add = [&](const std::string& way, const DdpOptions& ddp) {
    trained[way] = std::make_unique<Trained>(make_subject(options, group.rank()), group, ddp);
  };
  add("ddp", {});
  add("optimizer", {.shard = Shard::optimizer});
  add("per_host", {.shard = Shard::optimizer, .copies = Copies::per_host});
  add("gradients", {.shard = Shard::gradients, .copies = Copies::per_host});

  std::string way;
  for (int steps = 0; std::cin >> way >> steps;) {
    const auto found = trained.find(way);
    if (way != "floor" && found == trained.end()) {
      std::fprintf(stderr, "unknown way '%s'\n", way.c_str());
      return 2;
    }
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      loss = found == trained.end() ? backward_alone(alone) : found->second->step();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.6f %.9g\n", took.count(), loss);
    std::fflush(stdout);
  }
  return 0;
}
