#include "lockstep/launch/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace lockstep {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // a value of the store has 8 MiB at most
// A longer wait would keep other threads from the store.
constexpr std::chrono::milliseconds kOneWait{100};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

std::string key_of(int rank, std::string_view what) {
  return fmt::format("profile/{}/{}", rank, what);
}

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

// The profile of `rank`; nullopt if it does not send one in time.
std::optional<RankProfile> try_receive(Store& store, int rank, Deadline deadline) {
  const auto get = [&](const std::string& key) -> std::optional<std::string> {
    while (true) {
      const auto wait = Deadline::after(kOneWait);
      try {
        return store.get_text(key, wait, Member{MemberKind::rank, rank});
      } catch (const PeerError&) {
        // Before the deadline of the wait: the rank has ended without a profile.
        if (deadline.expired() || !wait.expired()) return std::nullopt;
      }
    }
  };
  const auto count = get(key_of(rank, "pieces"));
  if (!count) return std::nullopt;
  std::string bytes;
  for (int piece = 0; piece < std::stoi(*count); ++piece) {
    const auto next = get(key_of(rank, std::to_string(piece)));
    if (!next) return std::nullopt;
    bytes += *next;
  }
  return profile_from_bytes(bytes);
}

// A program that is checked for leaks is not told about this one.
Trace& never_freed(Trace* trace) {
#ifdef __SANITIZE_ADDRESS__
  __lsan_ignore_object(trace);
#endif
  return *trace;
}

}  // namespace

Profile::Profile(const World& world, Options options)
    : rank_(world.rank()),
      size_(world.size()),
      store_(world.has_store() ? &world.store() : nullptr),
      options_(std::move(options)),
      profile_{.rank = rank_, .host = host_name(), .clock_error_ns = options_.clock.error.count()},
      trace_(never_freed(
          new Trace({.window = options_.request.window,
                     .operators = options_.request.operators,
                     .on_step = [signal = signal_](bool last) { signal->tell(last); }}))),
      thread_([this](const std::stop_token& stop) { run(stop); }) {
  set_process_trace(&trace_);
}

Profile::~Profile() {
  set_process_trace(nullptr);
  if (trace_.is_active()) trace_.end_steps();
  thread_.request_stop();
  thread_.join();
}

void Profile::Signal::tell(bool last) {
  {
    const std::lock_guard lock(mutex);
    has_step = true;
    has_last = has_last || last;
  }
  changed.notify_one();
}

void Profile::run(const std::stop_token& stop) {
  const AlternateSignalStack signal_stack;
  ::pthread_setname_np(::pthread_self(), "profile");  // for benchmarks/profile_cost, ps and top
  for (bool is_last = false; !is_last;) {
    {
      std::unique_lock lock(signal_->mutex);
      (void)signal_->changed.wait(lock, stop, [this] { return signal_->has_step; });
      signal_->has_step = false;
      is_last = signal_->has_last || stop.stop_requested();
    }
    drain();
  }
  complete();
}

void Profile::drain() { profile_.add(trace_.drain(), options_.clock.offset.count()); }

// A profile must not make the program fail.
void Profile::complete() noexcept {
  try {
    profile_.num_lost = trace_.num_lost();
    if (rank_ == 0) {
      write_file();
    } else {
      send();
    }
  } catch (const std::exception& error) {
    options_.log.warning(fmt::format("the profile was not written: {}", error.what()));
  }
}

void Profile::send() {
  const auto bytes = to_bytes(profile_);
  int pieces = 0;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    store_->set(key_of(rank_, std::to_string(pieces++)),
                std::string_view(bytes).substr(begin, kPieceBytes), soon());
  }
  store_->set(key_of(rank_, "pieces"), std::to_string(pieces), soon());
}

void Profile::write_file() {
  const auto deadline = Deadline::after(options_.patience);
  std::vector<RankProfile> ranks;
  ranks.push_back(std::move(profile_));
  ProfileFacts facts{.world = size_, .window = options_.request.window};
  for (int rank = 1; rank < size_; ++rank) {
    if (auto received = try_receive(*store_, rank, deadline)) {
      ranks.push_back(*std::move(received));
    } else {
      facts.missing.push_back(rank);
    }
  }
  const auto draft = options_.path + ".new";
  {
    std::ofstream file(draft);
    write_profile(file, ranks, facts);
    file.close();
    if (!file) throw SystemError("cannot write " + draft, errno);
  }
  if (std::rename(draft.c_str(), options_.path.c_str()) != 0) {
    throw SystemError("cannot rename " + draft, errno);
  }
  std::int64_t error = 0;
  std::size_t events = 0;
  std::int64_t lost = 0;
  for (const auto& rank : ranks) {
    error = std::max(error, rank.clock_error_ns);
    events += rank.events.size();
    lost += rank.num_lost;
  }
  options_.log.info(fmt::format(
      "profile of steps {} to {}: {}, {} events of {} rank{}; {}. Open it in ui.perfetto.dev or "
      "chrome://tracing",
      facts.window.first, facts.window.last, options_.path, events, ranks.size(),
      ranks.size() == 1 ? "" : "s",
      error == 0 ? std::string("all ranks have one clock")
                 : fmt::format("clocks of hosts agree within {:.1f} us",
                               1e-3 * static_cast<double>(error))));
  if (lost > 0) {
    options_.log.warning(fmt::format(
        "{} events were lost because they came faster than they were drained: profile fewer steps, "
        "or without operators",
        lost));
  }
  if (!facts.missing.empty()) {
    options_.log.warning(
        fmt::format("the profile lacks rank{} {}: set LOCKSTEP_PROFILE on every node",
                    facts.missing.size() == 1 ? "" : "s", fmt::join(facts.missing, ", ")));
  }
}

void profile_if_requested(World& world, const Environment& environment, Deadline deadline) {
  const auto text = environment.find("LOCKSTEP_PROFILE");
  if (!text) return;
  Profile::Options options{.request = parse_profile_request("LOCKSTEP_PROFILE", *text)};
  options.path = environment.find("LOCKSTEP_PROFILE_FILE")
                     .value_or(world.run_dir() ? *world.run_dir() + "/profile.json"
                                               : std::string("profile.json"));
  options.clock = align_clocks(world, "profile", deadline);
  options.log = Log({.rank = world.rank()});
  world.keep_until_leaving(std::make_shared<Profile>(world, std::move(options)));
}

}  // namespace lockstep
