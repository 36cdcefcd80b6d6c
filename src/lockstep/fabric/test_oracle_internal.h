// For tests of this room. The expected results of collectives, computed by one thread from the
// inputs of all ranks, by the definitions in leaf_tree.h and dtype.h and without the code under
// test.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/base/test_half_internal.h"
#include "lockstep/fabric/call.h"
#include "lockstep/kernels/dtype.h"

namespace lockstep {

inline constexpr std::array kDTypes{DType::float32,  DType::float64, DType::float16,
                                    DType::bfloat16, DType::int8,    DType::int32,
                                    DType::int64,    DType::uint8,   DType::boolean};
inline constexpr std::array kReduceOps{ReduceOp::sum, ReduceOp::average, ReduceOp::min,
                                       ReduceOp::max, ReduceOp::product};

inline bool is_valid_reduction(DType dtype, ReduceOp op) {
  return op != ReduceOp::average || is_floating(dtype);
}

}  // namespace lockstep

namespace lockstep::oracle {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kMaxRanks = 64;

inline const HalfFormat& format_of(DType dtype) {
  return dtype == DType::float16 ? kFloat16 : kBFloat16;
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::uint64_t;  // wraps, and so does the conversion to T
    switch (op) {
      case ReduceOp::product:
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      default:
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    }
  } else {
    const bool has_nan = std::isnan(a) || std::isnan(b);
    switch (op) {
      case ReduceOp::product:
        return a * b;
      case ReduceOp::min:
        return has_nan ? std::numeric_limits<T>::quiet_NaN() : a < b ? a : b;
      case ReduceOp::max:
        return has_nan ? std::numeric_limits<T>::quiet_NaN() : a > b ? a : b;
      default:
        return a + b;
    }
  }
}

// The tree over leaves [begin, end), split at the largest power of two below their number.
template <typename T>
T reduce_tree(ReduceOp op, std::span<const std::type_identity_t<T>> leaves) {
  if (leaves.size() == 1) return leaves.front();
  std::size_t middle = 1;
  while (middle * 2 < leaves.size()) middle *= 2;
  return combine(op, reduce_tree<T>(op, leaves.first(middle)),
                 reduce_tree<T>(op, leaves.subspan(middle)));
}

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
template <typename T>
void write(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
void reduce_numbers(ReduceOp op, std::span<const Bytes> inputs, std::size_t i, std::byte* out) {
  std::array<T, kMaxRanks> leaves;
  std::size_t count = 0;
  for (const auto& input : inputs) leaves.at(count++) = read<T>(input.data() + i * sizeof(T));
  auto reduced_value = reduce_tree<T>(op, std::span(leaves).first(count));
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::average) reduced_value /= static_cast<T>(inputs.size());
  }
  write(out + i * sizeof(T), reduced_value);
}

inline void reduce_halves(DType dtype, ReduceOp op, std::span<const Bytes> inputs, std::size_t i,
                          std::byte* out) {
  const auto& format = format_of(dtype);
  std::array<float, kMaxRanks> leaves;
  std::size_t count = 0;
  for (const auto& input : inputs) {
    leaves.at(count++) =
        static_cast<float>(format.decode(read<std::uint16_t>(input.data() + 2 * i)));
  }
  auto reduced_value = reduce_tree<float>(op, std::span(leaves).first(count));
  if (op == ReduceOp::average) reduced_value /= static_cast<float>(inputs.size());
  write(out + 2 * i, format.encode(reduced_value));
}

inline void reduce_booleans(ReduceOp op, std::span<const Bytes> inputs, std::size_t i,
                            std::byte* out) {
  bool all = true;
  bool any = false;
  for (const auto& input : inputs) {
    const bool value = input[i] != std::byte{0};
    all = all && value;
    any = any || value;
  }
  const bool is_and = op == ReduceOp::product || op == ReduceOp::min;
  out[i] = std::byte{static_cast<unsigned char>(is_and ? all : any)};
}

/// The elementwise reduction of all inputs, which have equal length.
inline Bytes reduced(DType dtype, ReduceOp op, std::span<const Bytes> inputs) {
  Bytes out(inputs.front().size());
  for (std::size_t i = 0; i < out.size() / bytes_of(dtype); ++i) {
    switch (dtype) {
      case DType::float32:
        reduce_numbers<float>(op, inputs, i, out.data());
        break;
      case DType::float64:
        reduce_numbers<double>(op, inputs, i, out.data());
        break;
      case DType::float16:
      case DType::bfloat16:
        reduce_halves(dtype, op, inputs, i, out.data());
        break;
      case DType::int8:
        reduce_numbers<std::int8_t>(op, inputs, i, out.data());
        break;
      case DType::int32:
        reduce_numbers<std::int32_t>(op, inputs, i, out.data());
        break;
      case DType::int64:
        reduce_numbers<std::int64_t>(op, inputs, i, out.data());
        break;
      case DType::uint8:
        reduce_numbers<std::uint8_t>(op, inputs, i, out.data());
        break;
      case DType::boolean:
        reduce_booleans(op, inputs, i, out.data());
        break;
    }
  }
  return out;
}

inline Bytes part(const Bytes& whole, std::size_t index, std::size_t bytes) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(index * bytes);
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

/// The owner of each element.
inline std::vector<int> owner_of_each(const Owners& owners) {
  std::vector<int> owner(static_cast<std::size_t>(owners.count()), -1);
  for (int rank = 0; rank < owners.num_ranks(); ++rank) {
    for (const auto& range : owners.of(rank)) {
      for (auto i = range.begin; i < range.begin + range.count; ++i) {
        owner.at(static_cast<std::size_t>(i)) = rank;
      }
    }
  }
  return owner;
}

/// The same for kinds with owners. A reduction changes what the rank owns, a gather all else.
inline Bytes output_by_owners(const Call& call, std::span<const Bytes> inputs, int rank) {
  const auto width = bytes_of(call.dtype);
  const auto owner = owner_of_each(*call.owners);
  const bool is_reduction = call.kind == Collective::reduce_to_owners;
  const auto all = is_reduction ? reduced(call.dtype, call.op, inputs) : Bytes{};
  auto out = inputs[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (is_reduction && owner[i] != rank) continue;
    const auto& from = is_reduction ? all : inputs[static_cast<std::size_t>(owner[i])];
    std::memcpy(out.data() + i * width, from.data() + i * width, width);
  }
  return out;
}

/// Random owners of `count` elements, equal on every rank for equal arguments: up to three pieces
/// per rank on average, of very different lengths. Ranks that own nothing are common.
inline Owners draw_owners(int num_ranks, std::int64_t count, std::uint64_t seed) {
  RandomStream random({seed, random_purpose("owners")}, 0, 0);
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  const auto num_pieces = 1 + random.below(3 * ranks);
  std::vector<OwnedPiece> pieces;
  for (std::uint64_t i = 0; i < num_pieces; ++i) {
    const auto left = static_cast<std::uint64_t>(count);
    const auto most = random.below(2) == 0 ? left / num_pieces : left;
    const bool is_last = i + 1 == num_pieces;
    const auto own = is_last ? count : static_cast<std::int64_t>(random.below(most + 1));
    pieces.push_back({static_cast<int>(random.below(ranks)), own});
    count -= own;
  }
  return {num_ranks, pieces};
}

/// The expected output of `rank`. `inputs` are those of all ranks, empty for ranks without an
/// input.
inline Bytes output_of(const Call& call, std::span<const Bytes> inputs, int rank) {
  const auto piece = static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
  const auto self = static_cast<std::size_t>(rank);
  const auto root = static_cast<std::size_t>(call.root);
  const auto pieces_for = [&](std::size_t receiver) {
    std::vector<Bytes> pieces;
    for (const auto& input : inputs) pieces.push_back(part(input, receiver, piece));
    return pieces;
  };
  const auto concatenated = [](const std::vector<Bytes>& pieces) {
    Bytes all;
    for (const auto& bytes : pieces) all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  };
  switch (call.kind) {
    case Collective::all_reduce:
      return reduced(call.dtype, call.op, inputs);
    case Collective::reduce:
      return self == root ? reduced(call.dtype, call.op, inputs) : Bytes{};
    case Collective::reduce_scatter:
      return reduced(call.dtype, call.op, pieces_for(self));
    case Collective::all_gather:
      return concatenated({inputs.begin(), inputs.end()});
    case Collective::gather:
      return self == root ? concatenated({inputs.begin(), inputs.end()}) : Bytes{};
    case Collective::broadcast:
      return self == root ? Bytes{} : inputs[root];
    case Collective::scatter:
      return part(inputs[root], self, piece);
    case Collective::all_to_all:
      return concatenated(pieces_for(self));
    case Collective::reduce_to_owners:
    case Collective::gather_from_owners:
      return output_by_owners(call, inputs, rank);
    default:
      return {};
  }
}

/// Random elements of a dtype, equal on every rank for equal arguments. Magnitudes vary widely, so
/// that a summation order other than the tree gives other bits; integers use all bits, so that they
/// wrap.
inline Bytes draw(DType dtype, std::size_t count, std::uint64_t seed, std::uint64_t rank) {
  RandomStream random({seed, random_purpose("fabric test")}, rank, 0);
  Bytes bytes(count * bytes_of(dtype));
  const auto number = [&random] {
    const auto bits = random();
    const double fraction = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63;
    return std::ldexp(fraction, static_cast<int>(bits % 13) - 6);
  };
  for (std::size_t i = 0; i < count; ++i) {
    auto* at = bytes.data() + i * bytes_of(dtype);
    switch (dtype) {
      case DType::float32:
        write(at, static_cast<float>(number()));
        break;
      case DType::float64:
        write(at, number());
        break;
      case DType::float16:
      case DType::bfloat16:
        write(at, format_of(dtype).encode(number()));
        break;
      case DType::boolean:
        *at = std::byte{static_cast<unsigned char>(random() % 8 != 0)};
        break;
      default: {
        const auto bits = random();
        std::memcpy(at, &bits, bytes_of(dtype));
      }
    }
  }
  return bytes;
}

/// The index of the first element that differs in its bits; nullopt if there is none. Any two NaN
/// count as equal, because their payload is unspecified.
inline std::optional<std::size_t> first_difference(DType dtype, std::span<const std::byte> found,
                                                   std::span<const std::byte> wanted) {
  if (found.size() != wanted.size()) return std::min(found.size(), wanted.size());
  if (found.empty() || std::memcmp(found.data(), wanted.data(), found.size()) == 0) return {};
  const auto is_nan = [dtype](const std::byte* at) {
    switch (dtype) {
      case DType::float32:
        return std::isnan(read<float>(at));
      case DType::float64:
        return std::isnan(read<double>(at));
      case DType::float16:
      case DType::bfloat16:
        return std::isnan(format_of(dtype).decode(read<std::uint16_t>(at)));
      default:
        return false;
    }
  };
  const auto width = bytes_of(dtype);
  for (std::size_t i = 0; i < found.size() / width; ++i) {
    const auto* a = found.data() + i * width;
    const auto* b = wanted.data() + i * width;
    if (std::memcmp(a, b, width) != 0 && !(is_nan(a) && is_nan(b))) return i;
  }
  return {};
}

}  // namespace lockstep::oracle
