// checkpoint_benchmark FOLDER: for each line "<round>" on standard input, one asynchronous save of
// 200 MB of parameters to FOLDER, then the same bytes with one write and one fsync. Prints
// "<seconds that the save blocks the step> <seconds until the commit> <seconds of the plain
// write>". benchmarks/checkpoint_against_python runs it and Python in turns.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/rendezvous/world.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// The number of tensors that a model of this size has: 50 of 4 MB.
struct Parameters {
  lockstep::NamedTensors named_tensors() {
    lockstep::NamedTensors named;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      named.emplace_back("layers." + std::to_string(i) + ".weight", tensors[i]);
    }
    return named;
  }
  std::vector<at::Tensor> tensors;
};

double write_plainly(const std::string& path, std::span<const std::byte> bytes) {
  const auto begin = Clock::now();
  {
    const auto file = lockstep::FileDescriptor::open(path, O_WRONLY | O_CREAT | O_EXCL);
    lockstep::write_all(file.number(), bytes, path);
    if (::fsync(file.number()) != 0) std::perror(path.c_str());
  }
  const auto took = seconds(Clock::now() - begin);
  std::filesystem::remove(path);
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::puts("usage: checkpoint_benchmark FOLDER");
    return 2;
  }
  const std::string folder = argv[1];
  Parameters parameters;
  for (int i = 0; i < 50; ++i) parameters.tensors.push_back(torch::randn({1000, 1000}));
  lockstep::Run run(lockstep::World::alone(), folder,
                    {.keep = 2, .log = lockstep::Log({.level = lockstep::LogLevel::error})});
  run.track("parameters", parameters);
  (void)run.resume();
  for (std::string line; std::getline(std::cin, line);) {
    for (auto& tensor : parameters.tensors) tensor.add_(1);
    (void)run.end_of_step();
    const auto begin = Clock::now();
    run.save();
    const auto stalled = seconds(Clock::now() - begin);
    run.finish();
    const auto wrote = std::chrono::duration<double>(run.save_times().wrote).count();
    // The bytes that were saved: a disk may be faster with others.
    const auto bytes = torch::cat(parameters.tensors);
    const std::span plain(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes());
    std::printf("%.6f %.6f %.6f\n", stalled, wrote, write_plainly(folder + "/plain", plain));
    std::fflush(stdout);
  }
  return 0;
}
