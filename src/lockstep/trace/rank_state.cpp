#include "lockstep/trace/rank_state.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/deadline.h"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

template <std::size_t size>
using Text = std::array<std::uint64_t, size>;

template <std::size_t size>
Text<size> load(const RankPage::Words::Number (&words)[size]) noexcept {
  Text<size> text{};
  for (std::size_t i = 0; i < size; ++i) text[i] = words[i].load(std::memory_order_acquire);
  return text;
}

template <std::size_t size>
std::string to_text(const Text<size>& words) {
  std::array<char, size * 8> text{};
  std::memcpy(text.data(), words.data(), text.size());
  return {text.data(), ::strnlen(text.data(), text.size())};
}

// The coarse clock of the reader may be a tick behind that of the writer.
nanoseconds age_of(std::int64_t since, std::int64_t now) {
  return nanoseconds(since == 0 ? 0 : std::max<std::int64_t>(now - since, 0));
}

// A rank that was killed while it wrote leaves an odd version: after this time its call counts as
// unknown. A rank that runs needs nanoseconds, or the time until it is scheduled again.
constexpr std::chrono::milliseconds kLongestWrite{20};

std::optional<RankCall> read_call(const RankPage::Words& page, std::int64_t now) {
  std::uint64_t version = 0;
  std::uint64_t ended = 0;
  std::uint64_t kind = 0;
  std::uint64_t number = 0;
  std::int64_t since = 0;
  Text<sizeof(RankPage::CallName) / 8> name{};
  for (const auto limit = Deadline::after(kLongestWrite);; ::sched_yield()) {
    version = page.call_version.load(std::memory_order_acquire);
    if (version == 0) return std::nullopt;
    kind = page.call_kind.load(std::memory_order_acquire);
    number = page.call_number.load(std::memory_order_acquire);
    since = page.call_since.load(std::memory_order_acquire);
    ended = page.call_ended.load(std::memory_order_acquire);
    name = load(page.call_name);
    if (version % 2 == 0 && page.call_version.load(std::memory_order_relaxed) == version) break;
    if (limit.expired()) return std::nullopt;
  }
  return RankCall{.kind = static_cast<int>(kind),
                  .number = number,
                  .name = to_text(name),
                  .has_ended = ended == version,
                  .age = age_of(since, now)};
}

void read_activity(const RankPage::Words& page, std::int64_t now, RankState& state) {
  std::uint64_t activity = 0;
  std::int64_t since = 0;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    activity = page.activity.load(std::memory_order_acquire);
    since = page.since.load(std::memory_order_acquire);
    if (page.activity.load(std::memory_order_relaxed) == activity) break;
  }
  const auto part = (activity >> RankPage::kPartShift) & 0xff;
  state.part = part < kNumStepParts ? static_cast<StepPart>(part) : StepPart::other;
  const auto bucket = static_cast<int>((activity >> RankPage::kBucketShift) & 0xffff);
  if (bucket > 0) state.bucket = bucket - 1;
  state.age = age_of(since, now);
  const auto step = activity >> RankPage::kStepShift;
  if (step == 0) return;
  state.step = static_cast<std::int64_t>(step) - 1;
  const auto step_since = page.step_since.load(std::memory_order_relaxed);
  state.step_age = age_of(step_since, now);
  const auto steps = step - page.first_step.load(std::memory_order_relaxed);
  const auto lasted = step_since - page.first_since.load(std::memory_order_relaxed);
  if (steps > 0 && lasted > 0) {
    state.steps_per_second = static_cast<double>(steps) * 1e9 / static_cast<double>(lasted);
  }
}

}  // namespace

std::string to_string(RankStanding standing) {
  switch (standing) {
    case RankStanding::absent:
      return "absent";
    case RankStanding::running:
      return "running";
    case RankStanding::stopped:
      return "stopped";
    case RankStanding::ended:
      return "ended";
  }
  return "unknown";
}

RankState read_page(const RankPage::Words& page, int rank, std::int64_t now) {
  RankState state;
  state.rank = rank;
  state.node = static_cast<int>(page.node.load(std::memory_order_relaxed));
  state.host = to_text(load(page.host));
  const auto standing = page.standing.load(std::memory_order_relaxed);
  state.standing = static_cast<RankStanding>(std::min<std::uint64_t>(standing & 0xffffffff, 3));
  state.status = static_cast<int>(standing >> 32);
  state.pid = static_cast<int>(page.pid.load(std::memory_order_relaxed));
  state.memory_bytes = page.memory_bytes.load(std::memory_order_relaxed);
  read_activity(page, now, state);
  state.call = read_call(page, now);
  return state;
}

std::string where_is(const RankState& state) {
  if (state.pid == 0) return "";
  std::string where = state.step ? fmt::format("step {}", *state.step) : "before its first step";
  if (state.part != StepPart::other) where += ", " + part_in_words(state.part);
  if (state.bucket) {
    where += fmt::format(", bucket {}", *state.bucket);
  } else if (state.call && !state.call->has_ended && !state.call->name.empty()) {
    where += fmt::format(", call \"{}\"", state.call->name);
  }
  return where;
}

std::string part_in_words(StepPart part) {
  switch (part) {
    case StepPart::data_wait:
      return "waiting for data";
    case StepPart::exposed:
      return "waiting for gradients";
    case StepPart::other:
      return "between two parts";
    default:
      return std::string(name_of(part));
  }
}

}  // namespace lockstep
