#include "lockstep/testing/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <future>
#include <span>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep::testing {
namespace {

// Not through stdio: the thread that hangs may hold its lock.
void say(const std::string& text) {
  try {
    write_all(STDERR_FILENO, std::as_bytes(std::span(text)), "standard error");
  } catch (const std::exception&) {
    return;  // standard error is closed; the exit status still shows the hang
  }
}

}  // namespace

Watchdog::Watchdog(std::chrono::nanoseconds limit, std::function<std::string()> describe)
    : limit_(limit),
      describe_(std::move(describe)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void Watchdog::watch(const std::stop_token& stop) {
  const auto deadline = Deadline::after(limit_);
  std::unique_lock lock(mutex_);
  called_off_.wait_until(lock, stop, deadline.at(), [] { return false; });
  if (!stop.stop_requested()) bite();
}

void Watchdog::bite() const {
  say(fmt::format("\nlockstep: {} (process {}) did not finish within {:.3g} s and is ended.\n",
                  program_invocation_short_name, ::getpid(),
                  std::chrono::duration<double>(limit_).count()));
  std::promise<std::string> promise;
  auto text = promise.get_future();
  const std::jthread teller([this, &promise] {
    try {
      promise.set_value(describe_());
    } catch (const std::exception& error) {
      promise.set_value(fmt::format("Describing the state failed: {}", error.what()));
    }
  });
  const bool told = text.wait_for(kDescribeLimit) == std::future_status::ready;
  say(told ? text.get() + "\n"
           : fmt::format("Describing the state took more than {} s and was given up.\n",
                         kDescribeLimit.count()));
  ::_exit(kHungExitStatus);
}

}  // namespace lockstep::testing
