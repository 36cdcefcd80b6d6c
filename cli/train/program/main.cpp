// lockstep-train: one rank of `lockstep train`, which starts it. Its argument is the run's folder.
#include <exception>
#include <iostream>
#include <string>

#include "cli/train/program/training.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/init.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "This program serves `lockstep train`: use that.\n";
    return 2;
  }
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
