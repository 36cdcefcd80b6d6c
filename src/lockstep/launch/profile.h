// The profile of a job: with LOCKSTEP_PROFILE=10:20 in its environment, steps 10 to 20 of any
// program are recorded on all ranks, and rank 0 writes them to one file (trace/profile_file.h).
//
//   LOCKSTEP_PROFILE       the steps, and ",operators" (trace/profile_request.h); on every node
//   LOCKSTEP_PROFILE_FILE  the file; default: profile.json in the run folder, or in the current one
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/rendezvous/host_clocks.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/trace/profile_file.h"
#include "lockstep/trace/profile_request.h"

namespace lockstep {

class Profile {
 public:
  struct Options {
    ProfileRequest request = {};
    std::string path = {};  // on rank 0
    HostClock clock = {};
    Log log = Log();
    Deadline::Clock::duration patience = std::chrono::seconds(30);  // of rank 0, for other ranks
  };

  /// Starts a thread that drains the trace; it becomes that of the process. `world` is used in the
  /// constructor only; its store, if it has one, must outlive this object.
  Profile(const World& world, Options options);
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  /// Ends the recording, if the last step of the window has not been reached, and completes the
  /// file.
  ~Profile();

 private:
  // From the training thread to the draining one. Shared with the trace, which is never destroyed.
  struct Signal {
    void tell(bool last);

    std::mutex mutex;  // guards the members below
    std::condition_variable_any changed;
    bool has_step = false;
    bool has_last = false;
  };

  void run(const std::stop_token& stop);
  void drain();
  void complete() noexcept;
  void send();
  void write_file();

  const int rank_;
  const int size_;
  Store* const store_;  // null in a world of one process
  const Options options_;
  RankProfile profile_;  // of the thread
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  Trace& trace_;         // never freed: objects of the program that use it may outlive the World
  std::jthread thread_;  // the last member: it uses the others
};

/// If LOCKSTEP_PROFILE is set: profiles this process until `world` is left. Called by init().
/// Collective if the world has several hosts. Throws UsageError for an invalid value.
void profile_if_requested(World& world, const Environment& environment, Deadline deadline);

}  // namespace lockstep
