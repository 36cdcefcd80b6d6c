// The pages of all ranks of a run (rank_page.h) in one memory: a memfd of the launcher, which its
// ranks inherit. `pages` in the run folder is a link to it, so that any process of the same user
// on this host can read it while the launcher lives; when the run ends, a file with the last state
// replaces the link. The pages of ranks of other nodes are copies that the launchers exchange.
//
// The memory begins with one page about the run; the page of rank r follows at (r + 1) * kBytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/trace/rank_page.h"
#include "lockstep/trace/rank_state.h"

namespace lockstep {

/// A run at one moment.
struct RunState {
  std::string command = {};
  int round = 0;  // restarts before this one
  int launcher = 0;
  std::chrono::system_clock::time_point started = {};
  bool has_ended = false;
  std::vector<RankState> ranks = {};  // by rank

  friend bool operator==(const RunState&, const RunState&) = default;
};

class RunPages {
 public:
  static constexpr const char* kMemoryName = "lockstep pages";
  static constexpr const char* kFileName = "pages";  // in the run folder

  /// Allocates the pages of `size` ranks. Throws SystemError.
  RunPages(int size, std::string_view command);
  /// Maps the pages of the launcher that this process inherited. Throws UsageError for other
  /// contents, SystemError.
  explicit RunPages(const FileDescriptor& memory);

  /// Reads the pages that `path`, the link or the file in a run folder, leads to. Throws
  /// SystemError with ENOENT when there is none or when the launcher has ended without a last
  /// state; UsageError for other contents.
  [[nodiscard]] static RunState read(const std::string& path);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }
  /// The page of `rank`, for its process; it keeps the memory mapped. Throws UsageError for an
  /// invalid rank.
  [[nodiscard]] RankPage page(int rank) const;
  [[nodiscard]] RunState state() const;
  [[nodiscard]] RankState state_of(int rank) const;

  // For the launcher.
  /// Clears the pages of all ranks.
  void begin_round(int round) noexcept;
  void set_host(int rank, int node, std::string_view host) noexcept;
  void set_standing(int rank, RankStanding standing, int status = 0) noexcept;
  void set_memory(int rank, std::uint64_t bytes) noexcept;
  /// Links `path` to the memory. Throws SystemError.
  void link(const std::string& path) const;
  /// Replaces the link by a file with the last state. Throws SystemError.
  void leave(const std::string& path);

  /// The pages of `count` ranks from `first` on as bytes for the launcher of another node.
  [[nodiscard]] std::string copy_of(int first, int count) const;
  /// Replaces the pages of the ranks from `first` on by a result of copy_of(). Ages stay: the
  /// clocks of two hosts differ. Throws UsageError for bytes that are not such a copy.
  void mirror(int first, std::string_view copy);

 private:
  struct Header;

  RunPages() = default;
  void map(bool writable);
  [[nodiscard]] Header& header() const noexcept;
  [[nodiscard]] RankPage::Words& words(int rank) const noexcept;

  FileDescriptor memory_;
  std::shared_ptr<std::byte> bytes_;  // unmapped or freed by its deleter
  int size_ = 0;
};

}  // namespace lockstep
