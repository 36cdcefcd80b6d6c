// What a person sees of all ranks: whole lines, each with its rank in front, equal ones folded. The
// console has a thread of its own and a bounded queue: when the terminal is slower than the ranks,
// lines are dropped here, counted, and the count is shown; ranks never wait, and their logs have
// every byte.
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
  int local_size = 1;  // ranks whose lines come here
  int node = 0;
  int num_nodes = 1;
  std::optional<std::vector<int>> show_ranks = {};  // nothing: all
  bool prefix = true;                               // false: lines as they are, and not folded
  bool color_output = false;                        // on `output`
  bool color_error = false;                         // on `error`
  bool live = false;                                // `error` is a terminal with live lines
  int output = 1;                                   // borrowed
  int error = 2;                                    // borrowed
  std::chrono::milliseconds fold_window{50};
  std::size_t queue_bytes = 4u << 20;  // what waits for the terminal at most
};

class Console {
 public:
  explicit Console(ConsoleOptions options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  /// Shows what waits, for a second at most.
  ~Console();

  /// Lines of `rank`; never blocks for long. Safe from any thread.
  void show(int rank, OutputStream stream, std::vector<std::string> lines);
  /// The live line of `rank`, which stays the last line of the terminal; that of the last one who
  /// showed one is seen. Empty: none any more.
  void show_live(int rank, std::string text);
  /// A line of the launcher's own, "lockstep | …", on standard error. Never dropped.
  void notice(std::string text);
  /// Shows everything given so far and ends; later lines are dropped. Returns false when the
  /// terminal did not take it by `deadline`.
  [[nodiscard]] bool finish(Deadline deadline);

  /// Lines dropped so far.
  [[nodiscard]] std::uint64_t num_dropped() const;

 private:
  struct Item {
    OutputLine line;
    bool is_notice = false;
    std::uint64_t dropped_before = 0;  // lines dropped between the item before and this one
  };

  [[nodiscard]] bool is_shown(int rank) const;
  void work(const std::stop_token& stop);
  void print(std::deque<Item> items);
  void print(const std::vector<FoldedLine>& lines);
  void print_notice(const std::string& text);
  void print_dropped(std::uint64_t count);
  void print_live(const std::optional<std::string>& changed, bool last);
  /// Writes what was printed, until it is written, or nobody wants it any more.
  void write_out(const std::stop_token& stop);

  const ConsoleOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Item> queue_;                            // mutex_
  std::size_t queued_bytes_ = 0;                      // mutex_; also what the thread is writing
  std::uint64_t dropped_ = 0;                         // mutex_; all of them
  std::uint64_t dropped_unsaid_ = 0;                  // mutex_; not yet in an item
  std::optional<std::string> live_changed_;           // mutex_; not shown yet
  bool finishing_ = false;                            // mutex_
  bool finished_ = false;                             // mutex_; the thread has nothing left to do
  LineFolder folder_;                                 // the thread's
  std::string live_;                                  // the thread's; what is shown
  std::vector<std::pair<int, std::string>> printed_;  // the thread's: descriptor, bytes for it
  std::jthread thread_;
};

}  // namespace lockstep
