// A file that several ranks write at the same time, each its own bytes, and its digest, which no
// rank can compute alone. Words:
//
//   extent        adjacent bytes of the file that one rank writes
//   part          all extents of one rank
//   partial word  the digest (kernels/digest.h) is a sum over words of 8 bytes. An extent may begin
//                 or end inside such a word: a rank reports the bytes that it has of it, and
//                 combine_parts() completes the word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {

struct FileExtent {
  std::uint64_t position = 0;  // in the file
  std::span<const std::byte> bytes;
};

/// What one rank writes to a file.
struct FileToWrite {
  std::string name;
  std::uint64_t bytes = 0;               // of the whole file
  std::vector<FileExtent> extents = {};  // ascending, not adjacent; of a file that is not shared:
                                         // all bytes
  bool is_shared = false;                // other ranks write the remaining bytes
};

/// What one rank has written to a file. Equal to what any other rank would report for these bytes.
struct FilePart {
  struct Word {
    std::uint64_t position = 0;  // a multiple of 8
    std::uint64_t value = 0;     // little-endian; bytes that this rank does not have are 0
    int num_bytes = 0;           // that this rank has

    friend bool operator==(const Word&, const Word&) = default;
  };

  std::string name;
  std::uint64_t bytes = 0;   // of the whole file
  std::uint64_t digest = 0;  // of the words that this rank has completely
  std::uint64_t ends = 0;    // the sum of mark(end) - mark(begin) over the extents, where
                             // mark is a hash: see combine_parts()
  std::vector<Word> partial_words = {};

  friend bool operator==(const FilePart&, const FilePart&) = default;
};

/// The FilePart of extents, added one after the other.
class PartDigest {
 public:
  PartDigest(std::string name, std::uint64_t file_bytes);
  void add(const FileExtent& extent);
  [[nodiscard]] FilePart result() const;

 private:
  void add_partial(std::uint64_t position, std::span<const std::byte> bytes);

  FilePart part_;
  Digest digest_;
};

/// The records of all files, from the parts of all ranks. The order is that in which the names
/// first occur.
/// Throws UsageError, naming the file, if its parts do not cover each byte exactly once, or if
/// ranks report different lengths. This is exact up to a probability of 2^-64: the marks of all
/// begins and ends cancel, except those of the file's own begin and end, only if the extents form
/// one chain.
[[nodiscard]] std::vector<FileRecord> combine_parts(std::span<const FilePart> parts);

}  // namespace lockstep
