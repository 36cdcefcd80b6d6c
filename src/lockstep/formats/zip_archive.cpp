// Words: the table ("central directory") lists the members; the end record, at the end of the file,
// has the offset of the table; each member has its own header before its data. The source is
// PKWARE's APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and 4.5.3.
#include "lockstep/formats/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/quote.h"
#include "lockstep/formats/gzip_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMemberMagic = 0x04034b50;
constexpr std::uint32_t kRowMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50;
constexpr std::uint32_t kLargeEndMagic = 0x06064b50;
constexpr std::uint32_t kLargeEndLocatorMagic = 0x07064b50;
constexpr std::uint64_t kMemberBytes = 30;
constexpr std::uint64_t kRowBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kLargeEndBytes = 56;
constexpr std::uint64_t kLargeEndLocatorBytes = 20;
constexpr std::uint32_t kInLargeField = 0xffffffff;

template <typename Number>
std::uint64_t number(const FileBytes& file, std::uint64_t offset) {
  return little_endian<Number>(file.bytes().subspan(offset));
}
std::uint64_t u16(const FileBytes& file, std::uint64_t at) {
  return number<std::uint16_t>(file, at);
}
std::uint64_t u32(const FileBytes& file, std::uint64_t at) {
  return number<std::uint32_t>(file, at);
}
std::uint64_t u64(const FileBytes& file, std::uint64_t at) {
  return number<std::uint64_t>(file, at);
}

struct Table {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t num_members;
  std::uint64_t end;  // the offset of the end records
};

// A comment of up to 64 KiB can follow the end record, so the search begins at the end of the file.
std::uint64_t find_end_record(const FileBytes& file) {
  if (file.size() >= kEndBytes) {
    const auto last = file.size() - kEndBytes;
    const auto first = last > 0xffff ? last - 0xffff : 0;
    for (auto at = last + 1; at-- > first;) {
      if (u32(file, at) == kEndMagic && u16(file, at + 20) == last - at) return at;
    }
  }
  refuse(file, 0, "expected a zip archive (.npz, .whl), found no end record");
}

Table find_table(const FileBytes& file) {
  const auto at = find_end_record(file);
  if (u16(file, at + 4) != 0 || u16(file, at + 6) != 0) {
    refuse(file, at + 4, "expected an archive in one file, found a multi-disk archive");
  }
  Table table{u32(file, at + 16), u32(file, at + 12), u16(file, at + 10), at};
  const bool large =
      at >= kLargeEndLocatorBytes && u32(file, at - kLargeEndLocatorBytes) == kLargeEndLocatorMagic;
  if (large) {
    const auto end = u64(file, at - kLargeEndLocatorBytes + 8);
    if (end > at || at - end < kLargeEndBytes + kLargeEndLocatorBytes ||
        u32(file, end) != kLargeEndMagic) {
      refuse(file, at - kLargeEndLocatorBytes + 8,
             fmt::format("expected the offset of the zip64 end record, found {}", end));
    }
    table = {u64(file, end + 48), u64(file, end + 40), u64(file, end + 32), end};
  }
  if (table.offset > table.end || table.bytes != table.end - table.offset ||
      table.num_members > table.bytes / kRowBytes) {
    refuse(file, at + 10,
           fmt::format("expected the table of {} members to end at byte {}, found {} bytes at {}",
                       table.num_members, table.end, table.bytes, table.offset));
  }
  return table;
}

// Sizes above 32 bits are in extra field 1, in this order; other sizes are not in it.
void read_large_sizes(const FileBytes& file, std::uint64_t begin, std::uint64_t end,
                      ZipMember& member) {
  std::vector<std::uint64_t*> wanted;
  for (auto* size : {&member.bytes, &member.compressed_bytes, &member.header_offset}) {
    if (*size == kInLargeField) wanted.push_back(size);
  }
  for (auto at = begin; at + 4 <= end && !wanted.empty();) {
    const auto bytes = u16(file, at + 2);
    if (bytes > end - at - 4) refuse(file, at, "expected an extra field, found a truncated one");
    if (u16(file, at) == 1) {
      if (bytes < wanted.size() * 8) {
        refuse(file, at, fmt::format("expected {} sizes of 8 bytes", wanted.size()));
      }
      for (std::size_t i = 0; i < wanted.size(); ++i) *wanted[i] = u64(file, at + 4 + i * 8);
      return;
    }
    at += 4 + bytes;
  }
  if (!wanted.empty()) refuse(file, begin, "expected the zip64 sizes of a member, found none");
}

ZipMember read_row(const FileBytes& file, std::uint64_t at, std::uint64_t end,
                   std::uint64_t& next) {
  if (end - at < kRowBytes || u32(file, at) != kRowMagic) {
    refuse(file, at, "expected a row of the archive's table");
  }
  const auto flags = u16(file, at + 8);
  const auto method = u16(file, at + 10);
  const auto name_bytes = u16(file, at + 28);
  const auto extra_bytes = u16(file, at + 30);
  next = at + kRowBytes + name_bytes + extra_bytes + u16(file, at + 32);
  if (next > end) refuse(file, at, "expected a row of the archive's table, found a truncated one");
  ZipMember member{.name = std::string(file.text().substr(at + kRowBytes, name_bytes)),
                   .deflated = method == 8,
                   .crc = static_cast<std::uint32_t>(u32(file, at + 16)),
                   .bytes = u32(file, at + 24),
                   .compressed_bytes = u32(file, at + 20),
                   .header_offset = u32(file, at + 42)};
  if ((flags & 1u) != 0 || (method != 0 && method != 8)) {
    refuse(file, at + 8,
           fmt::format("expected member {} stored or deflated and not encrypted, found method {}, "
                       "flags 0x{:x}",
                       in_quotes(member.name), method, flags));
  }
  const auto extra = at + kRowBytes + name_bytes;
  read_large_sizes(file, extra, extra + extra_bytes, member);
  if (!member.deflated && member.bytes != member.compressed_bytes) {
    refuse(file, at + 20,
           fmt::format("expected {} bytes of stored member {}, found {}", member.bytes,
                       in_quotes(member.name), member.compressed_bytes));
  }
  return member;
}

// The data of a member, after its header has been compared with the table.
FileBytes data_of(const FileBytes& file, const ZipMember& member) {
  const auto at = member.header_offset;
  require_bytes(file, at, kMemberBytes, "a member's header");
  const auto name_bytes = u16(file, at + 26);
  const auto begin = at + kMemberBytes + name_bytes + u16(file, at + 28);
  if (u32(file, at) != kMemberMagic ||
      file.text().substr(at + kMemberBytes, name_bytes) != member.name) {
    refuse(file, at, fmt::format("expected the header of member {}", in_quotes(member.name)));
  }
  require_bytes(file, begin, member.compressed_bytes, "the data of " + in_quotes(member.name));
  return file.part(fmt::format("{}:{}", file.name(), in_quotes(member.name)), begin,
                   member.compressed_bytes);
}

// Overlapping members would let a small file expand to a huge one.
void check_apart(const FileBytes& file, std::vector<ZipMember> members, std::uint64_t table) {
  std::ranges::sort(members, {}, &ZipMember::header_offset);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto end = i + 1 < members.size() ? members[i + 1].header_offset : table;
    const auto begin = members[i].header_offset;
    if (begin > end || end - begin < kMemberBytes ||
        members[i].compressed_bytes > end - begin - kMemberBytes) {
      refuse(file, begin,
             fmt::format("expected member {} ({} bytes) to end before byte {}",
                         in_quotes(members[i].name), members[i].compressed_bytes, end));
    }
  }
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

ZipArchive::ZipArchive(FileBytes file) : file_(std::move(file)) {
  const auto table = find_table(file_);
  auto at = table.offset;
  for (std::uint64_t i = 0; i < table.num_members; ++i) {
    members_.push_back(read_row(file_, at, table.end, at));
  }
  if (at != table.end) refuse(file_, at, "expected the archive's table to end here");
  check_apart(file_, members_, table.offset);
}

FileBytes ZipArchive::contents(const ZipMember& member) const {
  auto data = data_of(file_, member);
  if (member.deflated) {
    if (!deflate_can_give(member.compressed_bytes, member.bytes)) {
      refuse(data, 0,
             fmt::format("the table claims {} bytes, more than {} compressed bytes can contain",
                         member.bytes, member.compressed_bytes));
    }
    std::vector<std::byte> inflated(member.bytes);
    Inflater inflater(data, DeflateWrapper::none);
    inflater.read(inflated, "the member");
    inflater.expect_end();
    data = FileBytes::of(data.name(), std::move(inflated));
  }
  if (const auto crc = crc_of(data.bytes()); crc != member.crc) {
    refuse(data, 0, fmt::format("expected CRC 0x{:08x}, found 0x{:08x}", member.crc, crc));
  }
  return data;
}

}  // namespace lockstep
