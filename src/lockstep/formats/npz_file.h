// numpy's .npz: a zip archive of .npy files, one per array.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/npy_file.h"
#include "lockstep/formats/zip_archive.h"

namespace lockstep {

class NpzFile {
 public:
  /// Throws UsageError if the file is not a zip archive, if a member's name does not end with .npy,
  /// or if two names are equal.
  explicit NpzFile(FileBytes file);

  /// The arrays' names, without ".npy", in the archive's order.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// The array `name`; decompressed into memory if the archive is compressed. Throws UsageError if
  /// there is no such array (the message lists the names), or if it is damaged.
  [[nodiscard]] NpyFile array(std::string_view name) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return archive_.file(); }

 private:
  ZipArchive archive_;
  std::vector<std::string> names_;
};

}  // namespace lockstep
