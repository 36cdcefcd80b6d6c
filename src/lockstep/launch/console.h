// The output of all ranks on a terminal: complete lines, each with its rank as a prefix, equal
// lines folded into one. The console has its own thread and a bounded queue: if the terminal is
// slower than the ranks, lines are dropped here and their number is shown. Ranks never wait for the
// terminal, and their logs have every byte.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/line_folder.h"

namespace lockstep {

struct ConsoleOptions {
  int size = 1;        // ranks in the world
  int local_size = 1;  // ranks whose lines are shown here
  int node = 0;
  int num_nodes = 1;
  std::optional<std::vector<int>> show_ranks = {};  // nullopt: all
  bool prefix = true;                               // false: lines unchanged and not folded
  bool color_output = false;                        // on `output`
  bool color_error = false;                         // on `error`
  bool live = false;                                // `error` is a terminal with live lines
  int output = 1;                                   // not owned
  int error = 2;                                    // not owned
  std::chrono::milliseconds fold_window{50};
  std::size_t queue_bytes = 4u << 20;  // the limit of the queue
};

class Console {
 public:
  explicit Console(ConsoleOptions options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  /// Shows the queued lines, for at most one second.
  ~Console();

  /// Shows lines of `rank`. Does not wait for the terminal. Thread-safe.
  void show(int rank, OutputStream stream, std::vector<std::string> lines);
  /// Shows the live line of `rank`, which stays the last line of the terminal. There is one live
  /// line: that of the rank that set it last. Empty text removes it.
  void show_live(int rank, std::string text);
  /// Shows a line of the launcher, "lockstep | …", on standard error. Never dropped.
  void notice(std::string text);
  /// Shows all queued lines and ends; later lines are dropped. Returns false when the terminal did
  /// not accept them by `deadline`.
  [[nodiscard]] bool finish(Deadline deadline);

  /// The number of lines dropped so far.
  [[nodiscard]] std::uint64_t num_dropped() const;

 private:
  struct Item {
    OutputLine line;
    bool is_notice = false;
    std::uint64_t dropped_before = 0;  // lines dropped between the previous item and this one
  };

  [[nodiscard]] bool is_shown(int rank) const;
  void work(const std::stop_token& stop);
  void print(std::deque<Item> items);
  void print(const std::vector<FoldedLine>& lines);
  void print_notice(const std::string& text);
  void print_dropped(std::uint64_t count);
  void print_live(const std::optional<std::string>& changed, bool last);
  /// Writes the printed bytes until all are written or a stop is requested.
  void write_out(const std::stop_token& stop);

  const ConsoleOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Item> queue_;                            // mutex_
  std::size_t queued_bytes_ = 0;                      // mutex_; includes what the thread writes now
  std::uint64_t dropped_ = 0;                         // mutex_; in total
  std::uint64_t dropped_unsaid_ = 0;                  // mutex_; not yet in an item
  std::optional<std::string> live_changed_;           // mutex_; not shown yet
  bool finishing_ = false;                            // mutex_
  bool finished_ = false;                             // mutex_; the thread has written everything
  LineFolder folder_;                                 // the thread's
  std::string live_;                                  // the thread's; what is shown
  std::vector<std::pair<int, std::string>> printed_;  // the thread's: descriptor, bytes for it
  std::jthread thread_;
};

}  // namespace lockstep
