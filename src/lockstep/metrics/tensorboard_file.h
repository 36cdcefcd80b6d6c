// One file of TensorBoard events: scalars and texts under a tag, by step. Written without protobuf,
// because LibTorch contains a copy of it already.
//
// A file is a sequence of records: u64 length, u32 masked CRC-32C of those 8 bytes, payload, u32
// masked CRC-32C of the payload, all little-endian. A payload is the protobuf message Event: wall
// time (1), step (2), file version (3) in the first record, summary (5), session log (7).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

struct TensorBoardOptions {
  /// The first step that a resumed run repeats. TensorBoard discards the events of this step and of
  /// later ones in earlier files of the folder.
  std::optional<std::int64_t> first_step = {};
};

class TensorBoardFile {
 public:
  /// Creates `folder` if it does not exist, and a new file in it. The name of the file contains the
  /// time, so that TensorBoard reads the files of a run in order. Throws SystemError.
  explicit TensorBoardFile(const std::string& folder, const TensorBoardOptions& options = {});

  /// Writes one event, with the current time; it is in the file when this returns. TensorBoard
  /// groups tags by the part before the first slash. One thread at a time. Throws SystemError.
  void scalar(std::string_view tag, double value, std::int64_t step);
  /// The same for a text, which TensorBoard shows as Markdown.
  void text(std::string_view tag, std::string_view value, std::int64_t step);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void write(const std::string& payload);

  std::string path_;
  FileDescriptor file_;
};

/// `payload` as a record, in the format of TFRecord files.
[[nodiscard]] std::string tensorboard_record(std::string_view payload);

}  // namespace lockstep
