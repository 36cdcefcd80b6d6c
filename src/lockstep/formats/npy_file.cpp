#include "lockstep/formats/npy_file.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "lockstep/base/quote.h"
#include "lockstep/formats/npy_header_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxHeaderBytes = 1u << 20;  // numpy's headers have about 100 bytes

constexpr std::array<std::pair<std::string_view, ElementType>, 12> kTypes{{
    {"|b1", ElementType::boolean},
    {"|u1", ElementType::u8},
    {"|i1", ElementType::i8},
    {"<u2", ElementType::u16},
    {"<i2", ElementType::i16},
    {"<u4", ElementType::u32},
    {"<i4", ElementType::i32},
    {"<u8", ElementType::u64},
    {"<i8", ElementType::i64},
    {"<f2", ElementType::f16},
    {"<f4", ElementType::f32},
    {"<f8", ElementType::f64},
}};

ElementType type_of(const FileBytes& file, std::uint64_t offset, std::string_view descr) {
  for (const auto& [name, type] : kTypes) {
    if (descr == name) return type;
  }
  std::string_view advice = "save it as one of those with array.astype(...)";
  if (descr.find('O') != std::string_view::npos) {
    advice = "an array of objects is a pickle, which runs code when read; save numbers";
  } else if (descr.starts_with('>')) {
    advice = "it is big-endian; save array.astype(array.dtype.newbyteorder('<'))";
  }
  refuse(file, offset,
         fmt::format("expected a little-endian number type (b1, u1 to u8, i1 to i8, f2 to f8), "
                     "found {}: {}",
                     in_quotes(descr), advice));
}

}  // namespace

NpyFile::NpyFile(FileBytes file) : file_(std::move(file)) {
  if (!file_.text().starts_with(kMagic)) {
    refuse(file_, 0,
           fmt::format(R"(expected the npy magic string "\x93NUMPY", found {})",
                       in_quotes(file_.text().substr(0, kMagic.size()))));
  }
  require_bytes(file_, kMagic.size(), 2, "the npy version");
  const int version = std::to_integer<int>(file_.bytes()[6]);
  if (version < 1 || version > 3) {
    refuse(file_, kMagic.size(),
           fmt::format("expected version 1, 2 or 3 of npy, found {}", version));
  }
  const std::uint64_t length_bytes = version == 1 ? 2 : 4;
  const std::uint64_t begin = 8 + length_bytes;
  require_bytes(file_, 8, length_bytes, "the header's length");
  const std::uint64_t length = version == 1
                                   ? little_endian<std::uint16_t>(file_.bytes().subspan(8))
                                   : little_endian<std::uint32_t>(file_.bytes().subspan(8));
  if (length > kMaxHeaderBytes) {
    refuse(file_, 8, fmt::format("expected a header of at most 1 MiB, found {} bytes", length));
  }
  require_bytes(file_, begin, length, "the header");
  auto header = parse_npy_header(file_, begin, begin + length);
  type_ = type_of(file_, begin, header.descr);
  if (header.fortran_order && header.shape.size() > 1) {
    refuse(file_, begin,
           "expected C order (row-major), found Fortran order; save "
           "numpy.ascontiguousarray(array)");
  }
  shape_ = std::move(header.shape);
  data_offset_ = begin + length;
  const auto wanted = try_array_bytes(shape_, type_);
  const auto found = file_.size() - data_offset_;
  if (!wanted || *wanted != found) {
    refuse(file_, data_offset_,
           fmt::format("expected {}{}, found {} bytes", array_words(type_, shape_),
                       wanted ? fmt::format(" ({} bytes)", *wanted) : "", found));
  }
}

}  // namespace lockstep
