// lockstep-train: one rank of `lockstep train`, which starts it. Its argument is the run's folder.
#include <malloc.h>

#include <exception>
#include <iostream>
#include <string>

#include "cli/train_program/training.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/init.h"

namespace {

// What a step frees is what the next one needs. Left to itself, glibc gives large blocks back to
// the system after every step and has the kernel clear the same pages again: no block gets a
// mapping of its own, and the heap is never cut short. (`lockstep train` tells the allocator that
// LibTorch has on aarch64.)
void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "This program serves `lockstep train`: use that.\n";
    return 2;
  }
  keep_freed_memory();
  try {
    const auto world = lockstep::init();
    const std::string folder = argv[1];
    lockstep::cli::Training(world, folder, lockstep::cli::read_config(folder)).run();
    return 0;
  } catch (const lockstep::Error& error) {
    std::cerr << "lockstep train: " << error.what() << '\n';
    return error.kind() == "usage" ? 2 : 1;
  } catch (const std::exception& error) {  // LibTorch's
    std::cerr << "lockstep train: " << error.what() << '\n';
    return 1;
  }
}
