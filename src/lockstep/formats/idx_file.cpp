#include "lockstep/formats/idx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/formats/gzip_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

std::optional<ElementType> type_of(std::byte code) {
  switch (std::to_integer<int>(code)) {
    case 0x08:
      return ElementType::u8;
    case 0x09:
      return ElementType::i8;
    case 0x0b:
      return ElementType::i16;
    case 0x0c:
      return ElementType::i32;
    case 0x0d:
      return ElementType::f32;
    case 0x0e:
      return ElementType::f64;
    default:
      return std::nullopt;
  }
}

struct Header {
  ElementType type;
  std::uint64_t num_dims;
};

Header read_magic(const FileBytes& file, std::span<const std::byte, 4> magic) {
  const auto type = type_of(magic[2]);
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0} || !type || magic[3] == std::byte{0}) {
    refuse(file, 0,
           fmt::format("expected the IDX magic number (0x00000803 for images, 0x00000801 for "
                       "labels), found 0x{:08x}",
                       big_endian_u32(magic)));
  }
  return {*type, std::to_integer<std::uint64_t>(magic[3])};
}

std::vector<std::uint64_t> read_sizes(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    sizes.push_back(big_endian_u32(bytes.subspan(at)));
  }
  return sizes;
}

// The number of bytes that the header claims. Safe to allocate: refused if the file, compressed or
// not, cannot contain that number.
std::uint64_t claimed_bytes(const FileBytes& file, const Header& header,
                            std::span<const std::uint64_t> sizes, bool compressed) {
  const auto bytes = try_array_bytes(sizes, header.type);
  if (!bytes) refuse(file, 4, "expected sizes of less than 2^63 bytes in total, found more");
  if (compressed && !deflate_can_give(file.size(), *bytes)) {
    refuse(file, 4,
           fmt::format("the header claims {} bytes of elements, more than a gzip file of {} bytes "
                       "can contain",
                       *bytes, file.size()));
  }
  return *bytes;
}

FileBytes to_little_endian(FileBytes elements, std::uint64_t element_bytes) {
  if (element_bytes == 1) return elements;
  std::vector<std::byte> swapped(elements.bytes().begin(), elements.bytes().end());
  for (auto at = swapped.begin(); at != swapped.end();
       at += static_cast<std::ptrdiff_t>(element_bytes)) {
    std::reverse(at, at + static_cast<std::ptrdiff_t>(element_bytes));
  }
  return FileBytes::of(elements.name(), std::move(swapped));
}

}  // namespace

IdxFile::IdxFile(FileBytes file)
    : file_(std::move(file)), compressed_(is_gzip(file_.bytes())), elements_(file_) {
  std::array<std::byte, 4> magic{};
  Header header{};
  if (compressed_) {
    Inflater inflater(file_, DeflateWrapper::gzip);
    inflater.read(magic, "the IDX magic number");
    header = read_magic(file_, magic);
    std::vector<std::byte> sizes(header.num_dims * 4);
    inflater.read(sizes, "the IDX sizes");
    shape_ = read_sizes(sizes);
    std::vector<std::byte> elements(claimed_bytes(file_, header, shape_, compressed_));
    inflater.read(elements, "the elements");
    inflater.expect_end();
    elements_ = FileBytes::of(file_.name(), std::move(elements));
  } else {
    require_bytes(file_, 0, 4, "the IDX magic number");
    std::ranges::copy(file_.bytes().first(4), magic.begin());
    header = read_magic(file_, magic);
    require_bytes(file_, 4, header.num_dims * 4, "the IDX sizes");
    shape_ = read_sizes(file_.bytes().subspan(4, header.num_dims * 4));
    const auto begin = 4 + header.num_dims * 4;
    const auto bytes = claimed_bytes(file_, header, shape_, compressed_);
    if (bytes != file_.size() - begin) {
      refuse(file_, begin,
             fmt::format("expected {} ({} bytes), found {} bytes", array_words(header.type, shape_),
                         bytes, file_.size() - begin));
    }
    elements_ = file_.part(file_.name(), begin, bytes);
  }
  type_ = header.type;
  elements_ = to_little_endian(std::move(elements_), element_type_bytes(type_));
}

}  // namespace lockstep
