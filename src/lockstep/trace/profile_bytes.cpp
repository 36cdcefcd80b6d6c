// The events of a rank as they come from its trace, and as bytes between ranks.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/trace/profile_file.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kMagic = 0x31'65'6c'69'66'6f'72'70;  // "profile1", little-endian

template <typename T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint64_t>(text.size()));
  bytes += text;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    T value{};
    const auto text = take_bytes(sizeof value);
    std::memcpy(&value, text.data(), sizeof value);
    return value;
  }
  std::string take_text() { return std::string(take_bytes(take<std::uint64_t>())); }
  /// A number of things of at least `each` bytes that follow.
  std::uint64_t take_count(std::size_t each) {
    const auto count = take<std::uint64_t>();
    if (count > bytes_.size() / each) refuse();
    return count;
  }
  [[nodiscard]] bool is_at_end() const { return bytes_.empty(); }
  [[noreturn]] static void refuse() {
    throw UsageError(
        "the profile of another rank is invalid: start all ranks with the same version of "
        "lockstep");
  }

 private:
  std::string_view take_bytes(std::uint64_t count) {
    if (count > bytes_.size()) refuse();
    const auto result = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return result;
  }
  std::string_view bytes_;
};

}  // namespace

void RankProfile::add(std::span<const TraceEvent> drained, std::int64_t clock_offset_ns) {
  const auto anchor = TickAnchor::now();
  const auto nanoseconds = [&](Ticks at) {
    return anchor.steady(at).time_since_epoch().count() + clock_offset_ns;
  };
  std::map<const char*, std::uint16_t> known{{nullptr, std::uint16_t{0}}};
  for (const auto& event : drained) {
    auto [name, is_new] = known.try_emplace(event.name);
    if (is_new) {
      const auto found = std::ranges::find(names, std::string_view(event.name));
      if (found == names.end() && names.size() < std::numeric_limits<std::uint16_t>::max()) {
        name->second = static_cast<std::uint16_t>(names.size());
        names.emplace_back(event.name);
      } else if (found != names.end()) {
        name->second = static_cast<std::uint16_t>(found - names.begin());
      }
    }
    events.push_back({.begin_ns = nanoseconds(event.begin),
                      .end_ns = nanoseconds(event.end),
                      .step = event.step,
                      .bytes = event.bytes,
                      .value = event.value,
                      .index = event.index,
                      .kind = event.kind,
                      .lane = event.lane,
                      .name = name->second});
  }
}

std::string to_bytes(const RankProfile& profile) {
  std::string bytes;
  put(bytes, kMagic);
  put(bytes, profile.rank);
  put_text(bytes, profile.host);
  put(bytes, profile.num_lost);
  put(bytes, profile.clock_error_ns);
  put(bytes, static_cast<std::uint64_t>(profile.names.size()));
  for (const auto& name : profile.names) put_text(bytes, name);
  put(bytes, static_cast<std::uint64_t>(profile.events.size()));
  for (const auto& event : profile.events) {
    put(bytes, event.begin_ns);
    put(bytes, event.end_ns);
    put(bytes, event.step);
    put(bytes, event.bytes);
    put(bytes, event.value);
    put(bytes, event.index);
    put(bytes, event.kind);
    put(bytes, event.lane);
    put(bytes, event.name);
  }
  return bytes;
}

RankProfile profile_from_bytes(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.take<std::uint64_t>() != kMagic) Reader::refuse();
  RankProfile profile;
  profile.rank = reader.take<int>();
  profile.host = reader.take_text();
  profile.num_lost = reader.take<std::int64_t>();
  profile.clock_error_ns = reader.take<std::int64_t>();
  profile.names.clear();
  for (auto left = reader.take_count(sizeof(std::uint64_t)); left > 0; --left) {
    profile.names.push_back(reader.take_text());
  }
  constexpr std::size_t event_bytes = 5 * 8 + 4 + 1 + 1 + 2;
  for (auto left = reader.take_count(event_bytes); left > 0; --left) {
    ProfileEvent event;
    event.begin_ns = reader.take<std::int64_t>();
    event.end_ns = reader.take<std::int64_t>();
    event.step = reader.take<std::int64_t>();
    event.bytes = reader.take<std::int64_t>();
    event.value = reader.take<double>();
    event.index = reader.take<std::int32_t>();
    event.kind = reader.take<EventKind>();
    event.lane = reader.take<Lane>();
    event.name = reader.take<std::uint16_t>();
    if (event.kind > EventKind::counter || event.lane > Lane::checkpoint ||
        event.name >= profile.names.size()) {
      Reader::refuse();
    }
    profile.events.push_back(event);
  }
  if (!reader.is_at_end()) Reader::refuse();
  return profile;
}

}  // namespace lockstep
