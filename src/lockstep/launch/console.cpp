#include "lockstep/launch/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <string_view>

#include "lockstep/base/crash_handler.h"
#include "lockstep/launch/console_style.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kLastWords{1};
constexpr int kLookAtStop = 100;  // milliseconds between two checks for a requested stop

std::size_t cost_of(const std::string& text) { return text.size() + 64; }

// Without this, a closed reader such as `| head` would end the launcher and the run by SIGPIPE.
void block_broken_pipe_signal() {
  sigset_t broken;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken, nullptr);
}

}  // namespace

Console::Console(ConsoleOptions options)
    : options_(std::move(options)),
      folder_(
          options_.show_ranks ? static_cast<int>(options_.show_ranks->size()) : options_.local_size,
          options_.fold_window),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

Console::~Console() { (void)finish(Deadline::after(kLastWords)); }

void Console::show(int rank, OutputStream stream, std::vector<std::string> lines) {
  if (lines.empty() || !is_shown(rank)) return;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (queued_bytes_ >= options_.queue_bytes || finishing_) {
        dropped_ += lines.size() - i;
        dropped_unsaid_ += lines.size() - i;
        break;
      }
      queued_bytes_ += cost_of(lines[i]);
      queue_.push_back({.line = {rank, stream, std::move(lines[i])},
                        .dropped_before = std::exchange(dropped_unsaid_, 0)});
    }
  }
  changed_.notify_one();
}

void Console::show_live(int rank, std::string text) {
  if (!options_.live || !is_shown(rank)) return;
  {
    const std::lock_guard lock(mutex_);
    live_changed_ = std::move(text);
  }
  changed_.notify_one();
}

void Console::notice(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (finishing_) return;
    queued_bytes_ += cost_of(text);
    queue_.push_back({.line = {.text = std::move(text)},
                      .is_notice = true,
                      .dropped_before = std::exchange(dropped_unsaid_, 0)});
  }
  changed_.notify_one();
}

bool Console::finish(Deadline deadline) {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  const bool done = changed_.wait_until(lock, deadline.at(), [this] { return finished_; });
  lock.unlock();
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return done;
}

std::uint64_t Console::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

bool Console::is_shown(int rank) const {
  if (!options_.show_ranks) return true;
  const auto& ranks = *options_.show_ranks;
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void Console::work(const std::stop_token& stop) {
  const AlternateSignalStack stack;
  block_broken_pipe_signal();
  bool last = false;
  while (!last && !stop.stop_requested()) {
    std::deque<Item> items;
    std::uint64_t unsaid = 0;
    std::size_t bytes = 0;
    std::optional<std::string> live;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [this] { return !queue_.empty() || live_changed_ || finishing_; };
      if (const auto ready = folder_.next_ready()) {
        changed_.wait_until(lock, stop, *ready, has_work);
      } else {
        changed_.wait(lock, stop, has_work);
      }
      items.swap(queue_);
      live = std::exchange(live_changed_, {});
      bytes = queued_bytes_;
      last = finishing_;
      if (last) unsaid = std::exchange(dropped_unsaid_, 0);
    }
    print(std::move(items));
    if (last) print(folder_.release_all());
    if (unsaid > 0) print_dropped(unsaid);
    print_live(live, last);
    write_out(stop);
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= bytes;
  }
  const std::lock_guard lock(mutex_);
  finished_ = !stop.stop_requested();
  changed_.notify_all();
}

void Console::print(std::deque<Item> items) {
  const auto now = LineFolder::Time::clock::now();
  for (Item& item : items) {
    if (item.dropped_before > 0 || item.is_notice) print(folder_.release_all());
    if (item.dropped_before > 0) print_dropped(item.dropped_before);
    if (item.is_notice) {
      print_notice(item.line.text);
    } else {
      folder_.feed(std::move(item.line), now);
      if (!options_.prefix) print(folder_.release_all());
    }
  }
  print(folder_.release_ready(LineFolder::Time::clock::now()));
}

void Console::print(const std::vector<FoldedLine>& lines) {
  for (const FoldedLine& line : lines) {
    const bool is_output = line.stream == OutputStream::standard_output;
    const bool color = is_output ? options_.color_output : options_.color_error;
    const PrefixStyle style{options_.size, options_.node, options_.num_nodes, color};
    auto text = options_.prefix ? line_prefix(line.ranks, style) : std::string();
    text += printable(line.text, color);
    text += '\n';
    printed_.emplace_back(is_output ? options_.output : options_.error, std::move(text));
  }
}

void Console::print_notice(const std::string& text) {
  printed_.emplace_back(options_.error, fmt::format("lockstep | {}\n", text));
}

void Console::print_dropped(std::uint64_t count) {
  print_notice(
      fmt::format("{} {} not shown here: the terminal is slower than the ranks; the logs have {}",
                  count, count == 1 ? "line is" : "lines are", count == 1 ? "it" : "them"));
}

// The live line is erased before other lines are written, and written again after them.
void Console::print_live(const std::optional<std::string>& changed, bool last) {
  const auto next = last ? "" : printable(changed.value_or(live_), options_.color_error);
  if (printed_.empty() && next == live_) return;
  if (!live_.empty()) printed_.emplace(printed_.begin(), options_.error, "\r\x1b[K");
  if (!next.empty()) printed_.emplace_back(options_.error, next);
  live_ = next;
}

void Console::write_out(const std::stop_token& stop) {
  // Consecutive items for the same descriptor are written together.
  for (std::size_t i = 0; i < printed_.size() && !stop.stop_requested();) {
    const int descriptor = printed_[i].first;
    std::string bytes;
    for (; i < printed_.size() && printed_[i].first == descriptor && bytes.size() < 65'536; ++i) {
      bytes += printed_[i].second;
    }
    std::string_view rest = bytes;
    while (!rest.empty() && !stop.stop_requested()) {
      // After poll, a write of PIPE_BUF bytes does not block: finish() can end this thread.
      pollfd room{descriptor, POLLOUT, 0};
      if (::poll(&room, 1, kLookAtStop) <= 0) continue;
      const auto count =
          ::write(descriptor, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
      if (count < 0 && errno != EINTR && errno != EAGAIN) break;  // the reader is gone
      if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  printed_.clear();
}

}  // namespace lockstep
