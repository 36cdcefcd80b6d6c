// The manifest of a checkpoint, manifest.json: the last file written into its folder. It lists the
// other files with their digests. docs/checkpoint_format.md describes every field.
//
// Words: a part is a tracked object under its name. Its tensors are the file <part>.safetensors,
// its JSON value is the part's state. Per-rank tensors are in rank-<r>.safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr char kManifestName[] = "manifest.json";
constexpr std::size_t kMaxManifestBytes = 64U << 20;
constexpr int kCheckpointVersion = 1;

/// A file of the checkpoint, as it was written.
struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // kernels/digest.h

  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// Why a checkpoint was written.
enum class SaveReason {
  periodic,  // RunOptions::save_every
  asked,     // Run::save(), or StepEnd::keep_as
  stop,      // a stop signal ended the run
  finish,    // Run::finish()
  import,    // `lockstep ckpt import`: it may lack parts
};

[[nodiscard]] std::string_view to_string(SaveReason reason) noexcept;

struct Manifest {
  std::string lockstep_version = {};
  std::int64_t step = 0;  // number of completed steps
  int world = 1;          // number of ranks that wrote it
  int threads = 1;        // LibTorch threads per rank: floating-point sums depend on it
  std::uint64_t seed = 0;
  std::uint64_t data_id = 0;  // 0: none
  std::int64_t failures = 0;  // number of restarts after an unclean exit
  SaveReason reason = SaveReason::periodic;
  std::vector<std::string> kept_as = {};           // names under which it is kept
  std::string configuration = "{}";                // RunOptions::configuration, any JSON
  std::map<std::string, std::string> states = {};  // JSON values of the parts, by name
  std::vector<FileRecord> files = {};

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// True for a valid name of a part or of a kept checkpoint: 1 to 64 of a-z, A-Z, 0-9, _ and -.
[[nodiscard]] bool is_part_name(std::string_view name) noexcept;
/// "model.safetensors".
[[nodiscard]] std::string part_file(std::string_view part);
/// "rank-00003.safetensors".
[[nodiscard]] std::string rank_file(int rank);

/// The text of manifest.json, which ends with a digest of the text before it. Throws UsageError if
/// the configuration or a state is not valid JSON.
[[nodiscard]] std::string to_text(const Manifest& manifest);

/// Reads the output of to_text and refuses everything else: each field must occur once, with its
/// type and within its limits, and there must be no other fields. Safe for untrusted bytes.
/// Throws UsageError that states what was expected and found.
[[nodiscard]] Manifest manifest_from_text(std::string_view text);

}  // namespace lockstep
