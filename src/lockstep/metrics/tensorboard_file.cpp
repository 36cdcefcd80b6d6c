#include "lockstep/metrics/tensorboard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The CRC of bytes that contain their own CRC is a constant; the mask avoids that.
std::uint32_t masked_crc(std::string_view bytes) {
  const auto crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8u;
}

template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

// The protobuf encodings that events use. Each returns a complete field: key, then value.
enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}

std::string key(unsigned field, WireType type) { return varint(field << 3 | type); }

std::string integer_field(unsigned field, std::int64_t value) {
  return key(field, kVarint) + varint(static_cast<std::uint64_t>(value));
}

std::string double_field(unsigned field, double value) {
  return key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float_field(unsigned field, float value) {
  return key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// A string, bytes, or a message.
std::string bytes_field(unsigned field, std::string_view value) {
  return key(field, kLength) + varint(value.size()) + std::string(value);
}

std::string event(std::int64_t step, const std::string& what) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return double_field(1, now.count()) + integer_field(2, step) + what;
}

// The summary of an event: one value with a tag.
std::string summary(std::string_view tag, const std::string& value) {
  return bytes_field(5, bytes_field(1, bytes_field(1, tag) + value));
}

// A tensor of one string, with the metadata of TensorBoard's text plugin.
std::string text_value(std::string_view text) {
  constexpr std::int64_t string_type = 7;
  const auto shape = bytes_field(2, integer_field(1, 1));
  const auto tensor = integer_field(1, string_type) + bytes_field(2, shape) + bytes_field(8, text);
  const auto metadata = bytes_field(1, bytes_field(1, "text"));
  return bytes_field(8, tensor) + bytes_field(9, metadata);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// With nanoseconds, so that two starts in one second sort by time.
std::string file_name() {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  return fmt::format("events.out.tfevents.{}.{:09}.{}.{}", now / 1'000'000'000, now % 1'000'000'000,
                     host_name(), ::getpid());
}

void make_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw SystemError(fmt::format("cannot create the folder {}", folder), failure.value());
}

}  // namespace

std::string tensorboard_record(std::string_view payload) {
  const auto length = little_endian(static_cast<std::uint64_t>(payload.size()));
  return length + little_endian(masked_crc(length)) + std::string(payload) +
         little_endian(masked_crc(payload));
}

TensorBoardFile::TensorBoardFile(const std::string& folder, const TensorBoardOptions& options) {
  make_folder(folder);
  path_ = folder + "/" + file_name();
  file_ = FileDescriptor::open(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  write(event(0, bytes_field(3, "brain.Event:2")));
  if (options.first_step) {
    constexpr std::int64_t start = 1;
    write(event(*options.first_step, bytes_field(7, integer_field(1, start))));
  }
}

void TensorBoardFile::scalar(std::string_view tag, double value, std::int64_t step) {
  write(event(step, summary(tag, float_field(2, static_cast<float>(value)))));
}

void TensorBoardFile::text(std::string_view tag, std::string_view value, std::int64_t step) {
  write(event(step, summary(tag, text_value(value))));
}

void TensorBoardFile::write(const std::string& payload) {
  const auto record = tensorboard_record(payload);
  write_all(file_.number(), std::as_bytes(std::span(record)), path_);
}

}  // namespace lockstep
