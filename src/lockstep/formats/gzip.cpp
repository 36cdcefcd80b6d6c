#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/formats/gzip_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {

bool deflate_can_give(std::uint64_t compressed_bytes, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t most = 1032;
  return bytes / most <= compressed_bytes;
}

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

struct Inflater::State {
  z_stream stream{};
  std::size_t given = 0;  // bytes of the file handed to zlib so far
  bool ended = false;

  [[nodiscard]] std::uint64_t position() const { return given - stream.avail_in; }
};

Inflater::Inflater(const FileBytes& file, DeflateWrapper wrapper)
    : file_(file), state_(std::make_unique<State>()) {
  constexpr int gzip_wrapper = 16;
  const int bits = wrapper == DeflateWrapper::gzip ? MAX_WBITS + gzip_wrapper : -MAX_WBITS;
  if (inflateInit2(&state_->stream, bits) != Z_OK) {
    refuse(file_, 0, "zlib cannot initialize its decompressor");
  }
}

Inflater::~Inflater() { inflateEnd(&state_->stream); }

std::size_t Inflater::pull(std::span<std::byte> out) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();
  auto& stream = state_->stream;
  std::size_t done = 0;
  while (done < out.size() && !state_->ended) {
    if (stream.avail_in == 0) {
      const auto input = file_.bytes().subspan(state_->given);
      const auto count = std::min(input.size(), most);
      // zlib's input pointer is not const, but zlib does not write to it.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
      stream.avail_in = static_cast<uInt>(count);
      state_->given += count;
    }
    const auto room = std::min(out.size() - done, most);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      state_->ended = true;
    } else if (result == Z_BUF_ERROR) {
      return done;  // the file ends before the stream
    } else if (result != Z_OK) {
      refuse(file_, state_->position(),
             fmt::format("expected valid deflate data, found an error (zlib: {})",
                         stream.msg != nullptr ? stream.msg : "damaged"));
    }
  }
  return done;
}

void Inflater::read(std::span<std::byte> out, std::string_view what) {
  const auto count = pull(out);
  if (count == out.size()) return;
  refuse(file_, state_->position(),
         fmt::format("expected {} ({} bytes) in the compressed data, found {} bytes", what,
                     out.size(), count));
}

void Inflater::expect_end() {
  std::array<std::byte, 1> extra{};
  if (pull(extra) != 0) {
    refuse(file_, state_->position(), "expected the compressed data to end, found more");
  }
  if (!state_->ended) {
    refuse(file_, state_->position(),
           "expected the end of the compressed data, found the end of the file");
  }
  if (state_->position() != file_.size()) {
    refuse(file_, state_->position(),
           fmt::format("expected the file to end after its compressed data, found {} more bytes",
                       file_.size() - state_->position()));
  }
}

}  // namespace lockstep
