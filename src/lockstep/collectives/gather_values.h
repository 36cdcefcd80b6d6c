// Values that are no tensors, from every rank to every rank, and from one rank to all: text,
// numbers, JSON. What PyTorch has as all_gather_object and broadcast_object_list, without pickle:
// nothing that arrives is executed, and no type travels that the receiver did not ask for.
//
//   const auto names = gather_values(group, name);              // vector<string>, by rank
//   const auto lists = gather_values(group, losses);            // vector<double>: lengths may differ
//   const auto shared_seed = broadcast_value(group, seed);      // rank 0's number
//   const auto shared_config = broadcast_value(group, config, 2);  // rank 2's nlohmann::json
//
// For facts and figures, not for data: values pass through copies in every process. A text, or all
// numbers of a rank together, may have kMaxGatheredBytes. A call of the group carries values of up
// to 496 bytes; where one is longer, a second call moves the longest length from every rank.
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
  std::string_view name = "values";  // for messages; ranks give the same
};

/// A number that arrives bit by bit as it was sent, NaN included.
template <typename T>
concept ValueNumber =
    std::same_as<T, double> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t>;

/// A class of JSON values, such as nlohmann::json: x.dump() writes text and T::parse(text) reads
/// it. What the class cannot write does not arrive: nlohmann::json writes NaN as null.
template <typename T>
concept JsonValue = requires(const T& value, const std::string& text) {
  { value.dump() } -> std::convertible_to<std::string>;
  { T::parse(text) } -> std::convertible_to<T>;
};

/// Every rank's `own`, by rank. Empty text and no numbers are values too.
/// Collective: every rank calls this, in the same order, with the same type; lengths may differ.
/// Returns when every rank's value has arrived.
/// Throws PeerError naming the rank that is lost or late, gives another type, a value that is too
/// long, or JSON that cannot be written; UsageError on that rank itself for the last two. The group
/// can be used after those.
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

/// The `value` of rank `root`; that of every other rank is not looked at.
/// Collective: every rank calls this, in the same order, with the same type and root. Returns when
/// root's value has arrived; the others may not have it yet.
/// Throws as gather_values, where the faulty rank is root; a rank that asks for another type than
/// root gives throws PeerError by itself. UsageError for a root that the group does not have.
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

/// What JSON values travel as; not for callers.
namespace json_values {

/// What dump() wrote, or the message of what it threw: a rank that cannot write its value must
/// still come, for the others wait.
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
/// Throws PeerError: what `rank` sent cannot be read here.
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
