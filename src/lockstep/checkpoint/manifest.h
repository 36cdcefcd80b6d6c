// What a checkpoint says about itself: manifest.json, the last file of its folder to be written and
// the sign that the others are whole. docs/checkpoint_format.md has every field.
//
// Words: a part is a tracked thing under its name; its tensors are the file <part>.safetensors, its
// JSON value is the part's state. What only one rank has lies in rank-<r>.safetensors.
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

/// A file beside the manifest, as it was when it was written.
struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // kernels/digest.h

  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// Why a checkpoint was written.
enum class SaveReason {
  periodic,  // it was due
  asked,     // the program asked for it
  stop,      // a signal ended the run
  finish,    // the run was over
  import,    // made of a file from elsewhere: it holds some parts only
};

[[nodiscard]] std::string_view to_string(SaveReason reason) noexcept;

struct Manifest {
  std::string lockstep_version = {};
  std::int64_t step = 0;  // how many steps were done
  int world = 1;          // ranks that wrote it
  int threads = 1;        // of LibTorch in each rank: sums depend on it
  std::uint64_t seed = 0;
  std::uint64_t data_id = 0;  // 0: none was given
  std::int64_t failures = 0;  // how often the run went on from a checkpoint it had not ended with
  SaveReason reason = SaveReason::periodic;
  std::vector<std::string> kept_as = {};           // names that keep it when it gets old
  std::string configuration = "{}";                // the program's own, any JSON
  std::map<std::string, std::string> states = {};  // JSON values of the parts that have one
  std::vector<FileRecord> files = {};

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// True for names that parts may have, and checkpoints that are kept: 1 to 64 of a-z, A-Z, 0-9, _
/// and -.
[[nodiscard]] bool is_part_name(std::string_view name) noexcept;
/// "model.safetensors".
[[nodiscard]] std::string part_file(std::string_view part);
/// "rank-00003.safetensors".
[[nodiscard]] std::string rank_file(int rank);

/// The manifest as a file has it, with a digest of itself at its end. Throws UsageError when the
/// configuration or a state is no JSON.
[[nodiscard]] std::string to_text(const Manifest& manifest);

/// Reads what to_text writes, and nothing else: every field once, of its kind and in its limits, no
/// other fields. The bytes may come from anyone. Throws UsageError that says what was expected and
/// found.
[[nodiscard]] Manifest manifest_from_text(std::string_view text);

}  // namespace lockstep
