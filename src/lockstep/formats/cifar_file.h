// The binary CIFAR files: records of a label (CIFAR-10), or a coarse and a fine one (CIFAR-100),
// and 32 x 32 pixels, red plane first, then green, then blue. No header; mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class CifarKind {
  detect,    // by the file size; a size that is valid for both kinds is refused
  cifar10,   // records of 1 + 3072 bytes
  cifar100,  // records of 2 + 3072 bytes
};

class CifarFile {
 public:
  static constexpr std::uint64_t kPixelBytes = 3072;  // 3 planes of 32 x 32

  /// Throws UsageError if the size is not a multiple of the record size or a label is out of range.
  explicit CifarFile(FileBytes file, CifarKind kind = CifarKind::detect);

  [[nodiscard]] std::uint64_t num_images() const noexcept { return num_images_; }
  [[nodiscard]] std::span<const std::byte> pixels(std::uint64_t image) const;
  /// 0 to 9; for CIFAR-100 the fine label, 0 to 99.
  [[nodiscard]] int label(std::uint64_t image) const;
  /// The detected kind, never `detect`.
  [[nodiscard]] CifarKind kind() const noexcept { return kind_; }
  [[nodiscard]] int num_classes() const noexcept { return kind_ == CifarKind::cifar10 ? 10 : 100; }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  [[nodiscard]] std::uint64_t label_bytes() const noexcept {
    return kind_ == CifarKind::cifar10 ? 1 : 2;
  }
  [[nodiscard]] std::uint64_t record_bytes() const noexcept { return label_bytes() + kPixelBytes; }
  void check_labels() const;

  FileBytes file_;
  CifarKind kind_;
  std::uint64_t num_images_ = 0;
};

}  // namespace lockstep
