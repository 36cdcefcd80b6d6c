#include "lockstep/gpu/watcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <list>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kReleaseInterval{1};
// The thread is awake much sooner after its timeout. If it is not, this process was stopped: that
// time was no waiting, and a resumed rank must not blame the others for it.
constexpr std::chrono::milliseconds kLongestDelay{500};

class ThreadWatcher final : public Watcher {
 public:
  explicit ThreadWatcher(const WatcherOptions& options)
      : options_(options), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_) throw SystemError("cannot create an eventfd for the watcher of GPUs", errno);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ThreadWatcher(const ThreadWatcher&) = delete;
  ThreadWatcher& operator=(const ThreadWatcher&) = delete;
  ~ThreadWatcher() override {
    thread_.request_stop();
    wake();
  }

  void add(WatchedGroup& group) override {
    {
      const std::lock_guard lock(mutex_);
      entries_.push_back({.group = &group});
    }
    wake();
  }
  void remove(WatchedGroup& group) noexcept override {
    const std::lock_guard lock(mutex_);
    entries_.remove_if([&](const Entry& entry) { return entry.group == &group; });
  }
  void wake() noexcept override {
    const std::uint64_t one = 1;
    // A full counter is as good as one more.
    [[maybe_unused]] const auto written = ::write(event_.number(), &one, sizeof one);
  }

 private:
  enum class Phase { watching, releasing, failed };
  struct Entry {
    WatchedGroup* group = nullptr;
    Phase phase = Phase::watching;
    std::set<int> ended = {};  // descriptors of ended processes: they would end every poll at once
  };

  void run(const std::stop_token& stop) {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the threads of the program
    std::vector<pollfd> descriptors;
    auto last_look = Deadline::Clock::now();
    while (!stop.stop_requested()) {
      const int timeout = prepare(descriptors);
      const int ready = ::poll(descriptors.data(), descriptors.size(), timeout);
      const auto before = std::exchange(last_look, Deadline::Clock::now());
      const auto delay = last_look - before - std::chrono::milliseconds(timeout);
      if (timeout >= 0 && delay > kLongestDelay) extend_deadlines(delay);
      if (ready < 0) continue;
      std::uint64_t count = 0;
      [[maybe_unused]] const auto read = ::read(event_.number(), &count, sizeof count);
      check_all(descriptors);
    }
  }

  // Sets the descriptors to sleep on; returns the timeout in milliseconds, -1 for none.
  int prepare(std::vector<pollfd>& descriptors) {
    descriptors.assign({{.fd = event_.number(), .events = POLLIN, .revents = 0}});
    auto until = Deadline(Deadline::Clock::time_point::max());
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_) {
      if (entry.phase == Phase::releasing) {
        until = std::min(until, Deadline::after(kReleaseInterval));
      }
      if (entry.phase != Phase::watching) continue;
      const auto deadline = entry.group->next_deadline();
      if (!deadline && entry.group->may_sleep()) continue;
      until = std::min(until, Deadline::after(options_.query_interval));
      if (deadline) until = std::min(until, *deadline);
      for (const auto& peer : entry.group->peers()) {
        const int number = peer.process ? peer.process->number() : -1;
        if (number < 0 || entry.ended.contains(number)) continue;
        descriptors.push_back({.fd = number, .events = POLLIN, .revents = 0});
      }
    }
    return until.at() == Deadline::Clock::time_point::max() ? -1 : until.poll_milliseconds();
  }

  void extend_deadlines(std::chrono::nanoseconds time) {
    const std::lock_guard lock(mutex_);
    for (auto& entry : entries_) entry.group->extend_deadlines(time);
  }

  void check_all(const std::vector<pollfd>& descriptors) {
    std::set<int> ended;
    for (const auto& descriptor : descriptors) {
      if (descriptor.fd != event_.number() && descriptor.revents != 0) ended.insert(descriptor.fd);
    }
    const std::lock_guard lock(mutex_);
    for (auto& entry : entries_) {
      for (const auto& peer : entry.group->peers()) {
        if (peer.process && ended.contains(peer.process->number())) {
          entry.ended.insert(peer.process->number());
        }
      }
      if (entry.phase == Phase::watching && entry.group->next_deadline()) {
        if (const auto cause = entry.group->find_cause()) {
          entry.group->fail(*cause);
          entry.phase = Phase::releasing;
        }
      }
      if (entry.phase == Phase::releasing && entry.group->release()) entry.phase = Phase::failed;
    }
  }

  const WatcherOptions options_;
  const FileDescriptor event_;
  std::mutex mutex_;          // held while the groups are checked: remove() then waits
  std::list<Entry> entries_;  // mutex_
  std::jthread thread_;       // the last member: it uses the others
};

}  // namespace

std::shared_ptr<Watcher> make_watcher(const WatcherOptions& options) {
  return std::make_shared<ThreadWatcher>(options);
}

std::shared_ptr<Watcher> watcher_of_process() {
  static std::mutex mutex;
  static std::weak_ptr<Watcher> shared;
  const std::lock_guard lock(mutex);
  auto watcher = shared.lock();
  if (!watcher) shared = watcher = make_watcher();
  return watcher;
}

}  // namespace lockstep
