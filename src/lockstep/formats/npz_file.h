// numpy's .npz: a zip archive of .npy files, one an array.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/npy_file.h"
#include "lockstep/formats/zip_archive.h"

namespace lockstep {

class NpzFile {
 public:
  /// Throws UsageError when the file is no zip archive, when a member's name does not end in .npy
  /// and when two are the same.
  explicit NpzFile(FileBytes file);

  /// The arrays' names, without ".npy", in the archive's order.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// The array called `name`: inflated into memory when the archive is compressed. Throws
  /// UsageError when there is none of that name, listing those there are, or when it is damaged.
  [[nodiscard]] NpyFile array(std::string_view name) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return archive_.file(); }

 private:
  ZipArchive archive_;
  std::vector<std::string> names_;
};

}  // namespace lockstep
