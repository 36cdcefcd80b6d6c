// The command line of `lockstep bench comm`, as a value.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/bench/comm/case.h"

namespace lockstep::cli {

enum class Peer { gloo, mpi };
[[nodiscard]] std::string_view to_string(Peer peer) noexcept;

struct BenchCommOptions {
  int num_ranks = 0;  // 0: one per core
  std::vector<std::size_t> sizes = {std::size_t{1} << 10, std::size_t{64} << 10,
                                    std::size_t{1} << 20, std::size_t{25} << 20};
  std::vector<Collective> ops = {Collective::all_reduce};
  std::vector<DType> dtypes = {DType::float32};
  std::vector<MemoryKind> memory = {MemoryKind::registered, MemoryKind::ordinary};
  std::chrono::milliseconds time{300};  // per row, backend and round
  int iterations = 0;                   // 0: as many as fit into time
  std::vector<Peer> compare = {};
  int rounds = 0;      // 0: 3 with peers, otherwise 1
  std::string python;  // empty: LOCKSTEP_PYTHON, then python3
  std::string json;    // files; empty: not written
  std::string svg;
  bool help = false;  // --help is given; the other options are not set
};

/// Parses the arguments after `lockstep bench comm`. Throws UsageError that names the argument and,
/// for an unknown word, the nearest known one.
[[nodiscard]] BenchCommOptions parse_bench_comm_options(const std::vector<std::string>& arguments);

/// The text of `lockstep bench comm --help`; fits on one screen.
[[nodiscard]] std::string bench_comm_help();

}  // namespace lockstep::cli
