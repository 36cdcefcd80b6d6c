// checkpoint_tensors save FOLDER: a run of one step whose model has tensors of every dtype,
// computed by a rule that checkpoint_agreement.py repeats. checkpoint_tensors again FOLDER: resumes
// from the checkpoint in FOLDER, changes nothing, and saves it as step 1.
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "lockstep/checkpoint/run.h"
#include "lockstep/rendezvous/world.h"

namespace {

struct Everything : torch::nn::Module {
  Everything() {
    const std::pair<const char*, at::ScalarType> dtypes[] = {
        {"BOOL", at::kBool}, {"U8", at::kByte},   {"I8", at::kChar},  {"I16", at::kShort},
        {"I32", at::kInt},   {"I64", at::kLong},  {"F16", at::kHalf}, {"BF16", at::kBFloat16},
        {"F32", at::kFloat}, {"F64", at::kDouble}};
    for (const auto* kind : {"plain", "matrix", "scalar", "empty"}) {
      register_module(kind, std::make_shared<torch::nn::Module>(kind));
    }
    int number = 0;
    for (const auto& [name, dtype] : dtypes) {
      const auto counting = (torch::arange(24 + number) * 7 + number).remainder(100);
      const auto plain =
          dtype == at::kBool ? counting.remainder(2).to(at::kBool) : counting.to(dtype);
      ++number;
      named_children()["plain"]->register_buffer(name, plain);
      named_children()["matrix"]->register_buffer(
          name, plain.narrow(0, 0, 24).view({2, 3, 4}).transpose(0, 2));
      named_children()["scalar"]->register_buffer(name, plain[5].clone());
      named_children()["empty"]->register_buffer(name, torch::empty({0, 3}, dtype));
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::puts("usage: checkpoint_tensors save|again FOLDER");
    return 2;
  }
  Everything model;
  if (argv[1] == std::string("again")) {
    for (auto& buffer : model.buffers()) buffer.zero_();
  }
  lockstep::Run run(lockstep::World::alone(), argv[2], {.save_every = 1});
  run.track("model", model);
  (void)run.resume();
  torch::manual_seed(5);
  (void)run.end_of_step();
  run.finish();
  return 0;
}
