// The page of a rank: step, part of the step, bucket, last collective call, each with the time at
// which it began. The rank writes it all the time, and `lockstep top` and the launcher read it from
// outside, also after the rank was killed:
//
//   world.page().step(step);                      // a step begins
//   world.page().enter(StepPart::forward);        // a part of it begins
//
// Ddp and the groups write their part by themselves. An update is a few stores and a read of the
// kernel's coarse clock (exact to a few milliseconds): no lock, no system call, no allocation. The
// memory is the launcher's (run_pages.h); it is not a file on a disk, because a store to a mapped
// file can wait for the disk. Without a launcher the page is private.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "lockstep/base/ticks.h"
#include "lockstep/trace/step_split.h"

namespace lockstep {

class RankPage {
 public:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::size_t kMaxName = 47;  // of a call

  /// The layout of a page. All fields are atomic words: a reader in another process sees old or new
  /// values, never a mixture within a word.
  struct Words {
    using Number = std::atomic<std::uint64_t>;
    using Time = std::atomic<std::int64_t>;  // of nanoseconds_now()

    // The rank's.
    Number pid;           // 0: init() was not called
    Number activity;      // step + 1, bucket + 1, part: see pack()
    Time since;           // when the activity began
    Time step_since;      // when the step began
    Number first_step;    // step + 1 of the first step that this process began
    Time first_since;     // when it began
    Number call_version;  // odd while the fields of the call are written
    Number call_ended;    // the version of the last call that has ended
    Number call_group;
    Number call_number;
    Time call_since;
    Number call_kind;
    Number call_name[(kMaxName + 1) / 8];  // text, padded with zeros

    // The launcher's.
    alignas(64) Number standing;  // RankStanding, in bits 32 and up the status of waitpid(2)
    Number node;
    Number memory_bytes;  // resident
    Number host[8];       // text
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static_assert(sizeof(Words) <= kBytes);

  /// A page in private memory, which nothing else reads.
  RankPage() : RankPage(std::make_shared<Words>()) {}
  /// A page in memory that `keep` owns.
  RankPage(Words& words, std::shared_ptr<const void> keep) noexcept
      : keep_(std::move(keep)), words_(&words) {}

  /// Step `number` begins. One thread at a time calls this and enter().
  void step(std::int64_t number) noexcept {
    const auto now = nanoseconds_now();
    words_->step_since.store(now, std::memory_order_relaxed);
    if (words_->first_step.load(std::memory_order_relaxed) == 0) {
      words_->first_since.store(now, std::memory_order_relaxed);
      words_->first_step.store(static_cast<std::uint64_t>(number) + 1, std::memory_order_relaxed);
    }
    publish(pack(number, StepPart::other, kNoBucket), now);
  }

  static constexpr int kNoBucket = -1;
  /// A part of the step begins, or a bucket within it.
  void enter(StepPart part, int bucket = kNoBucket) noexcept {
    const auto step = words_->activity.load(std::memory_order_relaxed) & kStepBits;
    publish(step | pack(-1, part, bucket), nanoseconds_now());
  }
  /// A bucket begins within the part.
  void enter_bucket(int bucket) noexcept {
    const auto activity = words_->activity.load(std::memory_order_relaxed);
    const auto part = static_cast<StepPart>((activity >> kPartShift) & 0xff);
    publish((activity & kStepBits) | pack(-1, part, bucket), nanoseconds_now());
  }

  /// The name of a call, padded with zeros.
  using CallName = char[kMaxName + 1];

  /// Collective call `number` of `group`, any number that identifies it, begins. `kind` is a
  /// Collective (fabric/call.h); `at` is now. Any thread may call this on its own copy of the page;
  /// if two do so at the same moment, the fields can be mixed until the next call.
  void begin_call(std::uint64_t group, std::uint64_t number, int kind, const CallName& name,
                  Ticks at) noexcept {
    const auto version = words_->call_version.load(std::memory_order_relaxed);
    if (version % 2 != 0) return;
    words_->call_version.store(version + 1, std::memory_order_relaxed);
    // Release: a reader that sees one of these sees the odd version too. A fence would do the same,
    // but the thread sanitizer does not know fences.
    const auto put = [](auto& word, auto value) { word.store(value, std::memory_order_release); };
    put(words_->call_group, group);
    put(words_->call_number, number);
    put(words_->call_since, nanoseconds_at(at));
    put(words_->call_kind, static_cast<std::uint64_t>(kind));
    std::array<std::uint64_t, sizeof(CallName) / 8> text;
    std::memcpy(text.data(), name, sizeof(CallName));
    for (std::size_t i = 0; i < text.size(); ++i) put(words_->call_name[i], text[i]);
    words_->call_version.store(version + 2, std::memory_order_release);
  }
  /// The call has ended. Only the last call that has begun is noted.
  void end_call(std::uint64_t group, std::uint64_t number) noexcept {
    if (words_->call_number.load(std::memory_order_relaxed) != number ||
        words_->call_group.load(std::memory_order_relaxed) != group) {
      return;
    }
    words_->call_ended.store(words_->call_version.load(std::memory_order_relaxed),
                             std::memory_order_relaxed);
  }

  [[nodiscard]] Words& words() const noexcept { return *words_; }

  /// Stores as much of `text` as fits, and a zero at its end.
  template <std::size_t size>
  static void store_text(Words::Number (&to)[size], std::string_view text) noexcept {
    std::array<std::uint64_t, size> words{};
    std::memcpy(words.data(), text.data(), std::min(text.size(), size * 8 - 1));
    for (std::size_t i = 0; i < size; ++i) to[i].store(words[i], std::memory_order_relaxed);
  }

  /// CLOCK_MONOTONIC_COARSE: equal in all processes of a host.
  [[nodiscard]] static std::int64_t nanoseconds_now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  // The fields of Words::activity: one word, so that a reader never combines a step with the part
  // of another one.
  static constexpr int kPartShift = 0;
  static constexpr int kBucketShift = 8;
  static constexpr int kStepShift = 24;
  static constexpr std::uint64_t kStepBits = ~std::uint64_t{0} << kStepShift;

 private:
  explicit RankPage(const std::shared_ptr<Words>& words) noexcept : RankPage(*words, words) {}

  static std::uint64_t pack(std::int64_t step, StepPart part, int bucket) noexcept {
    return static_cast<std::uint64_t>(step + 1) << kStepShift |
           static_cast<std::uint64_t>((bucket + 1) & 0xffff) << kBucketShift |
           static_cast<std::uint64_t>(part) << kPartShift;
  }
  // A read of a clock is 1 % of a small call, and the coarse clock changes every few milliseconds:
  // it is not read again within a small part of that time.
  std::int64_t nanoseconds_at(Ticks at) noexcept {
    constexpr Ticks kBetweenReads = 1 << 15;  // 10 microseconds to 1 ms
    if (at - read_at_ >= kBetweenReads) {
      read_at_ = at;
      read_ = nanoseconds_now();
    }
    return read_;
  }
  void publish(std::uint64_t activity, std::int64_t now) noexcept {
    words_->since.store(now, std::memory_order_relaxed);
    words_->activity.store(activity, std::memory_order_release);
  }

  std::shared_ptr<const void> keep_;
  Words* words_;
  Ticks read_at_ = 0;  // the last read of the clock for a call, and what it gave
  std::int64_t read_ = 0;
};

}  // namespace lockstep
