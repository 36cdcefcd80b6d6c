// What one engine is asked to time, and what it answers: files that `lockstep bench comm` and the
// programs it starts exchange. Every engine, ours and the peers, is a job whose ranks read the
// same request; rank 0 writes the answer.
//
// request: {"ranks", "cases": [{"op", "dtype", "bytes", "memory"}], "seconds", "iterations",
//           "rotation_bytes", "arena_bytes", "processors": [[…] a rank]}
// answer:  {"about", "cases": [null | {"cold": [s], "hot": [s], "add_bytes_per_second"}]}
// cold and hot hold one time an iteration, in seconds: the longest of all ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/comm/case.h"

namespace lockstep::cli {

struct CommRequest {
  int ranks = 1;
  std::vector<CommCase> cases = {};
  double seconds = 0.3;            // for each case's rotated calls, when iterations is 0
  int iterations = 0;              // exactly so many; 0: by seconds
  std::size_t rotation_bytes = 0;  // calls go round in at least this much memory
  std::size_t arena_bytes = 0;     // of each kind of memory and rank
  std::vector<std::vector<int>> processors = {};  // of each rank
};

struct CommSamples {
  std::vector<double> cold = {};    // each call on the next buffer of a round longer than the cache
  std::vector<double> hot = {};     // each call on the same buffer
  double add_bytes_per_second = 0;  // in-place adds of all ranks at once; 0: not measured
};

struct CommAnswer {
  std::string about = {};                                // the engine's name and version
  std::vector<std::optional<CommSamples>> samples = {};  // as the cases; none: it cannot do that
};

/// Throw UsageError for files that are not such, SystemError when the machine refuses.
void write_request(const CommRequest& request, const std::string& path);
[[nodiscard]] CommRequest read_request(const std::string& path);
void write_answer(const CommAnswer& answer, const std::string& path);
[[nodiscard]] CommAnswer read_answer(const std::string& path);

/// "all_reduce" to Collective::all_reduce and so on; none for another word.
[[nodiscard]] std::optional<Collective> try_timed_collective(std::string_view word);
[[nodiscard]] std::optional<DType> try_dtype(std::string_view word);

}  // namespace lockstep::cli
