#include "lockstep/collectives/gather_values.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

enum class Kind : std::int64_t {
  text,
  json,
  one_double,
  one_int64,
  one_uint64,
  doubles,
  int64s,
  uint64s
};

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::text:
      return "text";
    case Kind::json:
      return "JSON";
    case Kind::one_double:
      return "a double";
    case Kind::one_int64:
      return "an int64";
    case Kind::one_uint64:
      return "a uint64";
    case Kind::doubles:
      return "a list of doubles";
    case Kind::int64s:
      return "a list of int64";
    case Kind::uint64s:
      return "a list of uint64";
  }
  return "values of another version";
}

// The data of one rank in the first call. A value that fits is complete; a longer one needs the
// second call, whose length all ranks know by then.
struct Frame {
  static constexpr std::size_t kBytes = 512;
  static constexpr std::size_t kInline = kBytes - 2 * sizeof(std::int64_t);
  static constexpr std::int64_t kFailed = -1;  // instead of a length: `bytes` holds the reason

  std::int64_t length = 0;
  Kind kind = Kind::text;
  std::array<char, kInline> bytes{};

  [[nodiscard]] bool has_failed() const noexcept { return length < 0; }
  [[nodiscard]] std::size_t value_bytes() const noexcept {
    return has_failed() ? 0 : static_cast<std::size_t>(length);
  }
  [[nodiscard]] std::string reason() const {
    return {bytes.data(), ::strnlen(bytes.data(), bytes.size())};
  }
};
static_assert(sizeof(Frame) == Frame::kBytes);

struct Value {
  Kind kind = Kind::text;
  std::string_view bytes = {};
  bool has_failed = false;  // `bytes` holds the reason
};

Frame frame_of(const Value& value) {
  Frame frame{.kind = value.kind};
  const auto put = [&](std::string_view text) {
    std::copy_n(text.data(), std::min(text.size(), frame.bytes.size()), frame.bytes.data());
  };
  if (value.has_failed) {
    frame.length = Frame::kFailed;
    put(value.bytes);
  } else if (value.bytes.size() > kMaxGatheredBytes) {
    frame.length = Frame::kFailed;
    put(fmt::format("it has {} bytes; the maximum is {}", value.bytes.size(), kMaxGatheredBytes));
  } else {
    frame.length = static_cast<std::int64_t>(value.bytes.size());
    put(value.bytes);
  }
  return frame;
}

at::Tensor bytes_tensor(std::size_t count) {
  return at::zeros({static_cast<std::int64_t>(count)}, at::kByte);
}

const char* data_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

void put(at::Tensor& tensor, const void* bytes, std::size_t count) {
  if (count > 0) std::memcpy(tensor.mutable_data_ptr(), bytes, count);
}

Frame read_frame(const at::Tensor& frames, int rank) {
  Frame frame;
  std::memcpy(&frame, data_of(frames) + static_cast<std::size_t>(rank) * Frame::kBytes,
              Frame::kBytes);
  return frame;
}

// Throws if `rank` has no valid value, or a value of another kind than this rank.
void expect_value(const Frame& frame, int rank, Kind kind, const ProcessGroup& group,
                  const ValueOptions& options) {
  const int global = group.global_rank(rank);
  if (frame.has_failed()) {
    const auto words = fmt::format("the value of rank {} for \"{}\" is invalid: {}", global,
                                   options.name, frame.reason());
    if (rank == group.rank()) throw UsageError(words);
    throw PeerError(global, words);
  }
  if (frame.kind != kind) {
    throw PeerError(global,
                    fmt::format("rank {} passes {} for \"{}\", but rank {} passes {}: every "
                                "rank must pass the same type",
                                global, name_of(frame.kind), options.name,
                                group.global_rank(group.rank()), name_of(kind)));
  }
}

std::vector<std::string> gather_bytes(const ProcessGroup& group, const Value& own,
                                      const ValueOptions& options) {
  const auto frame = frame_of(own);
  auto mine = bytes_tensor(Frame::kBytes);
  put(mine, &frame, Frame::kBytes);
  const auto size = static_cast<std::size_t>(group.size());
  auto frames = bytes_tensor(size * Frame::kBytes);
  group.all_gather(frames, mine, {.name = options.name}).wait();

  std::vector<std::string> values;
  std::size_t longest = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto other = read_frame(frames, rank);
    // All ranks read the same frames: each rank finds the first frame of another kind than its own.
    expect_value(other, rank, own.kind, group, options);
    longest = std::max(longest, other.value_bytes());
    values.emplace_back(other.bytes.data(), std::min(other.value_bytes(), Frame::kInline));
    values.back().resize(other.value_bytes());
  }
  if (longest <= Frame::kInline) return values;

  auto whole = bytes_tensor(longest);
  put(whole, own.bytes.data(), own.bytes.size());
  auto all = bytes_tensor(size * longest);
  group.all_gather(all, whole, {.name = options.name}).wait();
  const char* begin = data_of(all);
  for (auto& value : values) {
    value.assign(begin, value.size());
    begin += longest;
  }
  return values;
}

std::string broadcast_bytes(const ProcessGroup& group, const Value& value, int root,
                            const ValueOptions& options) {
  const bool is_root = group.rank() == root;
  auto first = bytes_tensor(Frame::kBytes);
  if (is_root) {
    const auto frame = frame_of(value);
    put(first, &frame, Frame::kBytes);
  }
  group.broadcast(first, root, {.name = options.name}).wait();
  const auto frame = read_frame(first, 0);
  std::string bytes(frame.bytes.data(), std::min(frame.value_bytes(), Frame::kInline));
  if (frame.value_bytes() > Frame::kInline) {
    auto whole = bytes_tensor(frame.value_bytes());
    if (is_root) put(whole, value.bytes.data(), value.bytes.size());
    group.broadcast(whole, root, {.name = options.name}).wait();
    bytes.assign(data_of(whole), frame.value_bytes());
  }
  // Checked only now: a rank that throws before the second call would block the others.
  expect_value(frame, root, value.kind, group, options);
  return bytes;
}

template <typename T>
constexpr Kind kOne = Kind::one_double;
template <>
constexpr Kind kOne<std::int64_t> = Kind::one_int64;
template <>
constexpr Kind kOne<std::uint64_t> = Kind::one_uint64;
template <typename T>
constexpr Kind kList = Kind::doubles;
template <>
constexpr Kind kList<std::int64_t> = Kind::int64s;
template <>
constexpr Kind kList<std::uint64_t> = Kind::uint64s;

template <ValueNumber T>
Value value_of(Kind kind, std::span<const T> numbers) {
  return {.kind = kind,
          .bytes = {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}};
}

template <ValueNumber T>
std::vector<T> numbers_of(const std::string& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

template <ValueNumber T>
std::vector<std::vector<T>> gather_numbers(const ProcessGroup& group, std::span<const T> own,
                                           const ValueOptions& options) {
  std::vector<std::vector<T>> all;
  for (const auto& bytes : gather_bytes(group, value_of(kList<T>, own), options)) {
    all.push_back(numbers_of<T>(bytes));
  }
  return all;
}

template <ValueNumber T>
std::vector<T> broadcast_numbers(const ProcessGroup& group, std::span<const T> value, int root,
                                 const ValueOptions& options) {
  return numbers_of<T>(broadcast_bytes(group, value_of(kList<T>, value), root, options));
}

}  // namespace

std::vector<std::string> gather_values(const ProcessGroup& group, std::string_view own,
                                       const ValueOptions& options) {
  return gather_bytes(group, {.kind = Kind::text, .bytes = own}, options);
}

template <ValueNumber T>
std::vector<T> gather_values(const ProcessGroup& group, T own, const ValueOptions& options) {
  std::vector<T> all;
  for (const auto& bytes :
       gather_bytes(group, value_of(kOne<T>, std::span<const T>(&own, 1)), options)) {
    all.push_back(numbers_of<T>(bytes).front());
  }
  return all;
}
template std::vector<double> gather_values(const ProcessGroup&, double, const ValueOptions&);
template std::vector<std::int64_t> gather_values(const ProcessGroup&, std::int64_t,
                                                 const ValueOptions&);
template std::vector<std::uint64_t> gather_values(const ProcessGroup&, std::uint64_t,
                                                  const ValueOptions&);

std::vector<std::vector<double>> gather_values(const ProcessGroup& group,
                                               std::span<const double> own,
                                               const ValueOptions& options) {
  return gather_numbers(group, own, options);
}
std::vector<std::vector<std::int64_t>> gather_values(const ProcessGroup& group,
                                                     std::span<const std::int64_t> own,
                                                     const ValueOptions& options) {
  return gather_numbers(group, own, options);
}
std::vector<std::vector<std::uint64_t>> gather_values(const ProcessGroup& group,
                                                      std::span<const std::uint64_t> own,
                                                      const ValueOptions& options) {
  return gather_numbers(group, own, options);
}

std::string broadcast_value(const ProcessGroup& group, std::string_view value, int root,
                            const ValueOptions& options) {
  return broadcast_bytes(group, {.kind = Kind::text, .bytes = value}, root, options);
}

template <ValueNumber T>
T broadcast_value(const ProcessGroup& group, T value, int root, const ValueOptions& options) {
  const auto own = value_of(kOne<T>, std::span<const T>(&value, 1));
  return numbers_of<T>(broadcast_bytes(group, own, root, options)).front();
}
template double broadcast_value(const ProcessGroup&, double, int, const ValueOptions&);
template std::int64_t broadcast_value(const ProcessGroup&, std::int64_t, int, const ValueOptions&);
template std::uint64_t broadcast_value(const ProcessGroup&, std::uint64_t, int,
                                       const ValueOptions&);

std::vector<double> broadcast_value(const ProcessGroup& group, std::span<const double> value,
                                    int root, const ValueOptions& options) {
  return broadcast_numbers(group, value, root, options);
}
std::vector<std::int64_t> broadcast_value(const ProcessGroup& group,
                                          std::span<const std::int64_t> value, int root,
                                          const ValueOptions& options) {
  return broadcast_numbers(group, value, root, options);
}
std::vector<std::uint64_t> broadcast_value(const ProcessGroup& group,
                                           std::span<const std::uint64_t> value, int root,
                                           const ValueOptions& options) {
  return broadcast_numbers(group, value, root, options);
}

namespace json_values {

std::vector<std::string> gather(const ProcessGroup& group, const Written& own,
                                const ValueOptions& options) {
  return gather_bytes(group, {.kind = Kind::json, .bytes = own.text, .has_failed = own.has_failed},
                      options);
}

std::string broadcast(const ProcessGroup& group, const Written& value, int root,
                      const ValueOptions& options) {
  return broadcast_bytes(group,
                         {.kind = Kind::json, .bytes = value.text, .has_failed = value.has_failed},
                         root, options);
}

void refuse(const ProcessGroup& group, int rank, std::string_view why,
            const ValueOptions& options) {
  const int global = group.global_rank(rank);
  throw PeerError(global, fmt::format("the JSON of rank {} for \"{}\" is invalid: {}", global,
                                      options.name, why));
}

}  // namespace json_values
}  // namespace lockstep
