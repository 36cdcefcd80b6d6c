#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/fabric/flight_record.h"
#include "lockstep/fabric/group_memory_internal.h"
#include "lockstep/fabric/peers_internal.h"
#include "lockstep/fabric/progress_internal.h"
#include "lockstep/fabric/segment_exchange.h"
#include "lockstep/fabric/shm_call_internal.h"
#include "lockstep/fabric/shm_engine.h"
#include "lockstep/fabric/shm_mail_internal.h"

namespace lockstep {

// Who takes part in a group, and what it shares with the other groups of its world.
struct Membership {
  int rank = 0;
  std::vector<int> global_ranks;
  std::shared_ptr<Progress> progress;
  std::shared_ptr<const Secret> secret;  // for groups made by split; none in a world of one
  std::optional<std::string> run_dir;    // where a flight record goes
};

class ShmOperation final : public Operation {
 public:
  [[nodiscard]] const GroupFlags& flags() const noexcept override { return group_flags; }

  // Either a call, which begins when all have entered it, or a message, which begins at once.
  ShmCall call;
  ShmMail mail;
  bool is_call = true;
  bool begun = false;
  bool done = false;
  std::uint64_t fetched = 0;  // ranks whose input is on its way, a bit each
  Steps steps;
  GroupFlags group_flags;
  std::shared_ptr<const void> keep;
};

class ShmEngine final : public Engine, private ProgressMember {
 public:
  /// Collective. The exchange's members are the group's ranks.
  ShmEngine(Membership membership, std::unique_ptr<SegmentExchange> exchange,
            const EngineOptions& options);
  ~ShmEngine() override;

  [[nodiscard]] int rank() const noexcept override { return membership_.rank; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(membership_.global_ranks.size());
  }
  [[nodiscard]] int global_rank(int rank) const override;
  [[nodiscard]] std::string kind() const override { return "shm"; }

  [[nodiscard]] std::shared_ptr<Operation> start(const Call& call,
                                                 std::shared_ptr<const void> keep) override;
  [[nodiscard]] std::shared_ptr<Operation> send(const Message& message,
                                                std::span<const std::byte> bytes,
                                                std::shared_ptr<const void> keep) override;
  [[nodiscard]] std::shared_ptr<Operation> receive(const Message& message,
                                                   std::span<std::byte> bytes,
                                                   std::shared_ptr<const void> keep) override;
  void advance() override;
  [[nodiscard]] bool done(Operation& operation) override;
  void wait(Operation& operation, std::optional<Deadline> deadline) override;
  [[nodiscard]] std::shared_ptr<LibraryMemory> allocate(std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<Engine> split(int color, int key) override;

  /// The largest inline input that every rank joins by itself; nothing before it is set. Every rank
  /// sets the same.
  void set_one_shot_bytes(std::size_t bytes) noexcept { one_shot_bytes_ = bytes; }
  [[nodiscard]] std::optional<std::size_t> one_shot_bytes() const noexcept {
    return one_shot_bytes_;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void try_advance() noexcept override;
  [[nodiscard]] std::optional<std::string> awaits_this_rank(int global_rank) override;

  // All with mutex_ held; those that wait let go of it while they sleep.
  std::shared_ptr<ShmOperation> start_call(const Call& call, std::shared_ptr<const void> keep);
  // Waits until the ring has room for it.
  [[nodiscard]] std::uint64_t number_of_next_call();
  std::shared_ptr<ShmOperation> start_mail(ShmMail mail, std::shared_ptr<const void> keep);
  void wait_for(ShmOperation& operation, std::optional<Deadline> deadline);
  void advance_all();
  void move_all();
  void begin(ShmOperation& operation);
  // While the oldest call waits for some, lets come what the others have brought.
  void fetch_what_arrived() noexcept;
  [[nodiscard]] bool takes_one_shot(const Call& call) const noexcept;
  /// True when all ranks' memory lies at equal places too.
  bool expect_equal_calls(const ShmOperation& operation);
  [[nodiscard]] Awaited entered(const ShmOperation& operation) const noexcept;
  [[nodiscard]] Awaited blocker_of(const ShmOperation& operation) const noexcept;

  // What a wait goes through: spin, yield, sleep; each sleep ends in a look at the others.
  struct Wait {
    std::optional<Deadline> deadline = {};
    std::optional<std::chrono::steady_clock::time_point> since = {};  // of the first sleep
    bool reported = false;
    bool cycle_reported = false;
  };
  void wait_a_little(const Awaited& awaited, int rank, Wait& wait);
  void look_at_others(const Awaited& awaited, Wait& wait);
  [[nodiscard]] std::optional<Cause> reported_failure() const;
  [[nodiscard]] std::optional<Cause> find_failure(const Awaited& awaited) const;
  [[nodiscard]] std::string call_in_words(int rank, std::uint64_t number) const;
  [[nodiscard]] std::string last_call_in_words(int rank) const;
  [[nodiscard]] std::string rank_in_words(int rank) const;
  [[nodiscard]] std::string what_waits() const;

  void expect_usable() const;
  [[noreturn]] void fail(const Cause& cause);
  /// Returns when no other rank can write to this rank's memory any more.
  void cut_off();
  void write_flight_record(const std::string& cause) const noexcept;

  const Membership membership_;
  const EngineOptions options_;
  const Log log_;
  std::unique_ptr<SegmentExchange> exchange_;
  std::mutex allocating_;  // taken before mutex_: memory is handed out in one order
  std::mutex mutex_;       // guards all that follows
  GroupMemory memory_;
  Peers peers_;
  const TreePlan tree_;
  bool oversubscribed_ = false;
  std::optional<std::size_t> one_shot_bytes_;
  std::uint64_t calls_ = 0;                       // entered
  std::uint64_t room_until_ = kMaxCallsInFlight;  // calls up to this number have a slot
  std::uint64_t steps_ = 0;
  std::uint64_t rounds_ = 0;
  int splits_ = 0;
  std::deque<std::shared_ptr<ShmOperation>> queue_;  // calls not completed, oldest first
  std::list<std::shared_ptr<ShmOperation>> mails_;   // messages not done, oldest first
  std::vector<MailState> mail_states_;               // by peer
  FlightRecord record_;
  std::optional<Cause> failure_;
  std::chrono::steady_clock::time_point last_look_{};
};

/// Watches for a moment longer: who closes its connections because it ends counts as gone only a
/// moment later.
void look_again(const Watch& watch);

/// The largest inline input that is joined sooner by every rank itself than by all together,
/// measured now in `engine`'s group. Collective; every rank gets the same answer.
[[nodiscard]] std::size_t measure_switch_point(ShmEngine& engine);

}  // namespace lockstep
