// Gathers and broadcasts values that are not tensors: text, numbers, JSON. The equivalent of
// PyTorch's all_gather_object and broadcast_object_list without pickle: received bytes are never
// executed, and only the type that the receiver requests is accepted.
//
//   const auto names = gather_values(group, name);                 // vector<string>, by rank
//   const auto lists = gather_values(group, losses);               // vector<double> per rank
//   const auto shared_seed = broadcast_value(group, seed);         // the number of rank 0
//   const auto shared_config = broadcast_value(group, config, 2);  // nlohmann::json of rank 2
//
// For small values, not for data: every process copies them. A text, or all numbers of a rank
// together, may have kMaxGatheredBytes; lengths may differ between ranks. The first call of the
// group carries up to 496 bytes per rank; if a value is longer, a second call moves the maximum
// length from every rank.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

inline constexpr std::size_t kMaxGatheredBytes = std::size_t{64} << 20;

struct ValueOptions {
  std::string_view name = "values";  // for messages; equal on all ranks
};

/// A number that arrives bit-identical, NaN included.
template <typename T>
concept ValueNumber =
    std::same_as<T, double> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t>;

/// A class of JSON values, such as nlohmann::json: x.dump() writes text and T::parse(text) reads
/// it. The limits of the class apply: nlohmann::json writes NaN as null.
template <typename T>
concept JsonValue = requires(const T& value, const std::string& text) {
  { value.dump() } -> std::convertible_to<std::string>;
  { T::parse(text) } -> std::convertible_to<T>;
};

/// Returns the `own` of every rank, by rank. Empty texts and empty lists are valid values.
/// Collective: every rank calls this, in the same order, with the same type; lengths may differ.
/// Returns when the values of all ranks have arrived.
/// Throws PeerError naming the rank that has ended or is late, passes another type, a value that is
/// too long, or JSON that dump() refuses; that rank itself throws UsageError in the last two cases.
/// The group stays usable, except when a rank has ended or is late.
[[nodiscard]] std::vector<std::string> gather_values(const ProcessGroup& group,
                                                     std::string_view own,
                                                     const ValueOptions& options = {});
template <ValueNumber T>
[[nodiscard]] std::vector<T> gather_values(const ProcessGroup& group, T own,
                                           const ValueOptions& options = {});
[[nodiscard]] std::vector<std::vector<double>> gather_values(const ProcessGroup& group,
                                                             std::span<const double> own,
                                                             const ValueOptions& options = {});
[[nodiscard]] std::vector<std::vector<std::int64_t>> gather_values(
    const ProcessGroup& group, std::span<const std::int64_t> own, const ValueOptions& options = {});
[[nodiscard]] std::vector<std::vector<std::uint64_t>> gather_values(
    const ProcessGroup& group, std::span<const std::uint64_t> own,
    const ValueOptions& options = {});
template <JsonValue T>
[[nodiscard]] std::vector<T> gather_values(const ProcessGroup& group, const T& own,
                                           const ValueOptions& options = {});

/// Returns the `value` of rank `root`; the `value` of every other rank is ignored.
/// Collective: every rank calls this, in the same order, with the same type and root. Returns when
/// root's value has arrived; other ranks may not have it yet.
/// Throws as gather_values for an invalid value of root. Only the rank itself throws PeerError if
/// it requests another type than root passes. Throws UsageError for an invalid root.
[[nodiscard]] std::string broadcast_value(const ProcessGroup& group, std::string_view value,
                                          int root = 0, const ValueOptions& options = {});
template <ValueNumber T>
[[nodiscard]] T broadcast_value(const ProcessGroup& group, T value, int root = 0,
                                const ValueOptions& options = {});
[[nodiscard]] std::vector<double> broadcast_value(const ProcessGroup& group,
                                                  std::span<const double> value, int root = 0,
                                                  const ValueOptions& options = {});
[[nodiscard]] std::vector<std::int64_t> broadcast_value(const ProcessGroup& group,
                                                        std::span<const std::int64_t> value,
                                                        int root = 0,
                                                        const ValueOptions& options = {});
[[nodiscard]] std::vector<std::uint64_t> broadcast_value(const ProcessGroup& group,
                                                         std::span<const std::uint64_t> value,
                                                         int root = 0,
                                                         const ValueOptions& options = {});
template <JsonValue T>
[[nodiscard]] T broadcast_value(const ProcessGroup& group, const T& value, int root = 0,
                                const ValueOptions& options = {});

/// The transfer format of JSON values; not for callers.
namespace json_values {

/// The text of dump(), or the message of its exception: a rank whose value is invalid must still
/// make the call, because the others wait for it.
struct Written {
  std::string text = {};
  bool has_failed = false;
};

template <JsonValue T>
[[nodiscard]] Written write(const T& value) {
  try {
    return {.text = value.dump()};
  } catch (const std::exception& error) {
    return {.text = error.what(), .has_failed = true};
  }
}

[[nodiscard]] std::vector<std::string> gather(const ProcessGroup& group, const Written& own,
                                              const ValueOptions& options);
[[nodiscard]] std::string broadcast(const ProcessGroup& group, const Written& value, int root,
                                    const ValueOptions& options);
/// Throws PeerError: the JSON of `rank` is invalid here.
[[noreturn]] void refuse(const ProcessGroup& group, int rank, std::string_view why,
                         const ValueOptions& options);

template <JsonValue T>
[[nodiscard]] T read(const ProcessGroup& group, int rank, const std::string& text,
                     const ValueOptions& options) {
  try {
    return T::parse(text);
  } catch (const std::exception& error) {
    refuse(group, rank, error.what(), options);
  }
}

}  // namespace json_values

template <JsonValue T>
std::vector<T> gather_values(const ProcessGroup& group, const T& own, const ValueOptions& options) {
  std::vector<T> values;
  for (const auto& text : json_values::gather(group, json_values::write(own), options)) {
    const auto rank = static_cast<int>(values.size());
    values.push_back(json_values::read<T>(group, rank, text, options));
  }
  return values;
}

template <JsonValue T>
T broadcast_value(const ProcessGroup& group, const T& value, int root,
                  const ValueOptions& options) {
  const auto own = group.rank() == root ? json_values::write(value) : json_values::Written{};
  return json_values::read<T>(group, root, json_values::broadcast(group, own, root, options),
                              options);
}

}  // namespace lockstep
