// lockstep-train: one rank of `lockstep train`, which starts it with the run's folder as argument.
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "cli/error_report.h"
#include "cli/train/program/training.h"
#include "lockstep/launch/init.h"
#include "lockstep/train/seeds.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "lockstep-train is started by `lockstep train`: use that command.\n";
    return 2;
  }
  try {
    const auto world = lockstep::init();
    const std::string folder = argv[1];
    const auto saved = lockstep::cli::read_config(folder);
    std::optional<lockstep::Deterministic> deterministic;  // before the first use of a GPU
    if (saved.resolved.config.deterministic) deterministic.emplace();
    lockstep::cli::Training(world, folder, saved).run();
    return 0;
  } catch (const lockstep::Error& error) {
    return lockstep::cli::report("train", error, std::cerr);
  } catch (const std::exception& error) {  // LibTorch's
    std::cerr << "lockstep train: " << error.what() << '\n';
    return 1;
  }
}
