#include "lockstep/trace/trace.h"

#include <bit>
#include <new>

namespace lockstep {
namespace {

std::atomic<Trace*> the_process_trace{nullptr};

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The ring that this thread used last.
struct Remembered {
  std::uint64_t trace = 0;  // 0: none
  void* ring = nullptr;
};

thread_local Remembered remembered;  // NOLINT

}  // namespace

// One thread writes and one reads. `written` and `read` count events; they differ by at most the
// capacity.
struct Trace::Ring {
  explicit Ring(std::size_t capacity) : mask(capacity - 1), events(new TraceEvent[capacity]) {}

  alignas(64) std::atomic<std::uint64_t> written{0};
  std::uint64_t known_read = 0;  // of the writing thread
  std::atomic<std::int64_t> lost{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
  const std::uint64_t mask;
  const std::unique_ptr<TraceEvent[]> events;
  const void* thread = nullptr;  // identifies the writing thread
};

Trace::Trace(TraceOptions options)
    : options_(std::move(options)), id_(next_id()), active_(options_.window.contains(0)) {}

Trace::~Trace() {
  Trace* self = this;
  the_process_trace.compare_exchange_strong(self, nullptr);
}

Trace::Ring* Trace::ring_of_this_thread() noexcept {
  if (remembered.trace == id_) return static_cast<Ring*>(remembered.ring);
  return add_ring();
}

Trace::Ring* Trace::add_ring() noexcept {
  const std::lock_guard lock(mutex_);
  const void* thread = &remembered;
  for (const auto& ring : rings_) {
    if (ring->thread != thread) continue;
    remembered = {id_, ring.get()};
    return ring.get();
  }
  try {
    rings_.push_back(std::make_unique<Ring>(std::bit_ceil(options_.events_per_thread)));
  } catch (const std::bad_alloc&) {
    return nullptr;  // a measurement must not make the measured program fail
  }
  rings_.back()->thread = thread;
  remembered = {id_, rings_.back().get()};
  return rings_.back().get();
}

void Trace::record(const TraceEvent& event) noexcept {
  if (!is_active()) return;
  Ring* const ring = ring_of_this_thread();
  if (ring == nullptr) return;
  const auto at = ring->written.load(std::memory_order_relaxed);
  if (at - ring->known_read > ring->mask) {
    ring->known_read = ring->read.load(std::memory_order_acquire);
    if (at - ring->known_read > ring->mask) {
      ring->lost.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  auto& entry = ring->events[at & ring->mask];
  entry = event;
  entry.step = step();
  ring->written.store(at + 1, std::memory_order_release);
}

void Trace::begin_step(std::int64_t step, Ticks now) {
  steps_are_set_ = true;
  change_step(step, now);
}

void Trace::end_steps() { change_step(step() + 1, ticks()); }

void Trace::count_step() {
  if (!steps_are_set_) change_step(step() + 1, ticks());
}

void Trace::change_step(std::int64_t step, Ticks now) {
  const auto before = this->step();
  const bool was_active = before > 0 && options_.window.contains(before) && before != step;
  if (was_active) {
    record({.begin = step_begin_, .end = now, .kind = EventKind::step, .lane = Lane::step});
  }
  step_.store(step, std::memory_order_relaxed);
  step_begin_ = now;
  active_.store(options_.window.contains(step), std::memory_order_relaxed);
  if (was_active && options_.on_step) options_.on_step(/*last=*/step > options_.window.last);
}

const char* Trace::intern(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(text);
  return found != names_.end() ? found->c_str() : names_.emplace(text).first->c_str();
}

std::vector<TraceEvent> Trace::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEvent> events;
  for (const auto& ring : rings_) {
    const auto begin = ring->read.load(std::memory_order_relaxed);
    const auto end = ring->written.load(std::memory_order_acquire);
    for (auto at = begin; at != end; ++at) events.push_back(ring->events[at & ring->mask]);
    ring->read.store(end, std::memory_order_release);
  }
  return events;
}

std::int64_t Trace::num_lost() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (const auto& ring : rings_) sum += ring->lost.load(std::memory_order_relaxed);
  return sum;
}

Trace* process_trace() noexcept { return the_process_trace.load(std::memory_order_acquire); }

void set_process_trace(Trace* trace) noexcept {
  the_process_trace.store(trace, std::memory_order_release);
}

}  // namespace lockstep
