// One rank of a training step that a script times beside Python's (compare.py):
//   ddp_step mlp WIDTH BATCH | transformer LENGTH BATCH
// Reads lines "way steps" from standard input and prints, for each, the seconds that the steps took
// and the last loss. Ways: `single` trains alone; `apart` trains alone with a barrier of all ranks
// after each step; `ddp` averages gradients over the ranks. These three use LibTorch's fused AdamW,
// as Python does. `own` trains alone as a program of lockstep does: Ddp over one rank, and
// lockstep's AdamW.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "fused_adamw.h"
#include "lockstep/lockstep.h"
#include "subject.h"

namespace {

using namespace lockstep;

template <typename Optimizer>
double step_of(const Subject& subject, Optimizer& optimizer) {
  const at::Tensor loss = subject.loss();
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  return loss.item<double>();
}

struct Trained {
  explicit Trained(Subject made)
      : subject(std::move(made)), optimizer(subject.model->parameters(), {.lr = 1e-4}) {}

  double step() { return step_of(subject, optimizer); }

  Subject subject;
  FusedAdamW optimizer;
};

struct OwnTrained {
  explicit OwnTrained(Subject made)
      : subject(std::move(made)),
        ddp(*subject.model, ProcessGroup(World::alone())),
        optimizer(ddp.flat(), {.lr = 1e-4}) {}

  double step() { return step_of(subject, optimizer); }

  Subject subject;
  Ddp ddp;
  AdamW optimizer;
};

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  if (num_arguments != 4) {
    std::fputs("usage: ddp_step mlp WIDTH BATCH | transformer LENGTH BATCH\n", stderr);
    return 2;
  }
  const SubjectOptions options{arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3])};
  at::set_num_threads(1);
  ProcessGroup group(world);
  Trained plain(make_subject(options, group.rank()));
  Trained averaged(make_subject(options, group.rank()));
  const Ddp ddp(*averaged.subject.model, group);

  OwnTrained own(make_subject(options, group.rank()));

  std::string way;
  for (int steps = 0; std::cin >> way >> steps;) {
    const bool is_alone = way == "single" || way == "own";
    if (!is_alone && way != "apart" && way != "ddp") {
      std::fprintf(stderr, "unknown way '%s': expected single, own, apart or ddp\n", way.c_str());
      return 2;
    }
    if (!is_alone) group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      loss = way == "own" ? own.step() : way == "ddp" ? averaged.step() : plain.step();
      if (way == "apart") group.barrier().wait();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.6f %.9g\n", took.count(), loss);
    std::fflush(stdout);
  }
  return 0;
}
