// The request and the answer of one measured backend: files that `lockstep bench comm` exchanges
// with the programs it starts. Every backend, that of lockstep and those it is compared with, is a
// job whose ranks read the same request; rank 0 writes the answer.
//
// request: {"ranks", "cases": [{"op", "dtype", "bytes", "memory"}], "seconds", "iterations",
//           "rotation_bytes", "arena_bytes", "on_one_host", "processors": [[…] per rank]}
// answer:  {"name", "about", "cases": [null | {"cold": [s], "hot": [s], "add_bytes_per_second"}]}
// cold and hot hold one time per iteration, in seconds: the maximum over all ranks.
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
  double seconds = 0.3;            // per case, for calls on rotated buffers, if iterations is 0
  int iterations = 0;              // calls per case; 0: as many as fit into seconds
  std::size_t rotation_bytes = 0;  // calls rotate through at least this much memory
  std::size_t arena_bytes = 0;     // per kind of memory and rank
  bool on_one_host = true;  // otherwise in-place adds are not timed: there is no common memory
  std::vector<std::vector<int>> processors = {};  // of each rank
};

struct CommSamples {
  std::vector<double> cold = {};    // each call on the next buffer; all exceed the cache together
  std::vector<double> hot = {};     // each call on the same buffer
  double add_bytes_per_second = 0;  // in-place adds of all ranks at once; 0: not measured
};

struct CommAnswer {
  std::string name = {};   // of lockstep's backend, by its group: "shm"; empty from a peer
  std::string about = {};  // the backend's name and version
  std::vector<std::optional<CommSamples>> samples = {};  // one per case; nullopt: unsupported
};

/// The request as text, and back. The latter throws UsageError that names `origin`.
[[nodiscard]] std::string to_text(const CommRequest& request);
[[nodiscard]] CommRequest request_from_text(const std::string& text, const std::string& origin);

/// Throw UsageError for a file with other contents, SystemError when the file cannot be read or
/// written.
void write_request(const CommRequest& request, const std::string& path);
[[nodiscard]] CommRequest read_request(const std::string& path);
void write_answer(const CommAnswer& answer, const std::string& path);
[[nodiscard]] CommAnswer read_answer(const std::string& path);

/// "all_reduce" to Collective::all_reduce and so on; nullopt for any other word.
[[nodiscard]] std::optional<Collective> try_timed_collective(std::string_view word);
[[nodiscard]] std::optional<DType> try_dtype(std::string_view word);

}  // namespace lockstep::cli
