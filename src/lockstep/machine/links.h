// Links between ranks: their class, and how data are divided into chunks that are on their way at
// the same time. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class LinkClass { ethernet, infiniband, nvlink };
[[nodiscard]] std::string_view to_string(LinkClass link) noexcept;

/// The class of a link that moves this many bytes per second in one direction: nvlink above 200
/// GB/s, infiniband above 50 GB/s, otherwise ethernet. An unknown rate (0, NaN) counts as ethernet.
[[nodiscard]] LinkClass link_class_of(double bytes_per_second) noexcept;

/// The elements per chunk of an array of `count` elements on a link that has not been measured:
/// min(n/4, 1 Mi) on nvlink, min(n/8, 256 Ki) on infiniband, min(n/16, 64 Ki) on ethernet; at least
/// 1.
[[nodiscard]] std::int64_t unmeasured_chunk(std::int64_t count, LinkClass link) noexcept;

/// The bytes per chunk of an array of `bytes` on a measured link. A chunk is reduced while the next
/// one is on its way: k chunks take (k + 1) times the latency plus the time of a chunk, which is
/// least for a chunk of sqrt(bytes · latency · rate). Rounded to a power of two, at least 16 KiB,
/// at most `bytes`. `latency` is in seconds, `rate` in bytes per second; both above 0.
[[nodiscard]] std::size_t measured_chunk(std::size_t bytes, double latency, double rate) noexcept;

/// The number of connections per pair of ranks: `several` if they are at least 10 % faster than
/// one, otherwise 1.
[[nodiscard]] int advised_stripes(double rate_of_one, double rate_of_several, int several) noexcept;

}  // namespace lockstep
