// For tests. A double of NcclFunctions on a DeviceDouble. Ranks that are threads share both; ranks
// that are processes have doubles of their own, which share a board per communicator.
//
// As in NCCL, a call returns before its work is enqueued on the stream: the double enqueues it
// after a number of queries that is drawn at random, so that work which a caller enqueues behind it
// too early runs before it. The work of a group of calls starts when the streams of all ranks have
// reached it, and otherwise waits until abort(). As in NCCL, a communicator whose calls are part of
// CUDA graphs is not finalized, and abort() does not return, before these graphs are destroyed.
// Errors are scripted. What NCCL forbids is noted as a violation: use after abort() or destroy(),
// abort() during a call, a call before ready.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/test_device_double_internal.h"
#include "lockstep/gpu/test_nccl_board_internal.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

struct NcclDoubleOptions {
  std::uint64_t seed = 1;
  std::size_t most_queries = 3;  // until a call is enqueued
  bool between_processes = false;
};

class NcclDouble final : public NcclFunctions {
 public:
  NcclDouble(std::shared_ptr<DeviceDouble> device, NcclDoubleOptions options = {})
      : device_(std::move(device)),
        options_(options),
        random_({options.seed, random_purpose("NCCL double")}, 0, 0) {}

  /// Called with the name of every function before it does anything; a failure is returned.
  void set_fault(DeviceDouble::Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  /// From now on, query() of `rank` fails with `text`, as after a failure on the network.
  void set_asynchronous_error(int rank, std::string text) {
    const std::lock_guard lock(mutex_);
    errors_[rank] = std::move(text);
  }
  /// From now on, the work of `rank` never starts, as if its process had died.
  void kill(int rank) {
    const std::lock_guard lock(mutex_);
    killed_.insert(rank);
  }
  /// From now on, calls are accepted and never enqueued.
  void stall() {
    const std::lock_guard lock(mutex_);
    stalled_ = true;
  }
  void clear_script() {
    const std::lock_guard lock(mutex_);
    errors_.clear();
    killed_.clear();
    stalled_ = false;
  }
  /// Destroys all CUDA graphs that contain calls.
  void drop_graphs() {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, comm] : communicators_) comm->is_in_graph = false;
    changed_.notify_all();
  }
  [[nodiscard]] std::vector<std::string> violations() {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  [[nodiscard]] int num_aborted() {
    const std::lock_guard lock(mutex_);
    return num_aborted_;
  }
  /// Aborted ones that have been freed: abort() has returned, or is about to.
  [[nodiscard]] int num_freed() {
    const std::lock_guard lock(mutex_);
    return num_freed_;
  }
  [[nodiscard]] int num_destroyed() {
    const std::lock_guard lock(mutex_);
    return num_destroyed_;
  }
  [[nodiscard]] int num_open() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(communicators_.size()) - num_aborted_ - num_destroyed_;
  }

  DeviceStatus version(int& version) override {
    version = 22809;
    return fault_in("version");
  }

  DeviceStatus make_id(NcclId& id) override {
    const std::lock_guard lock(mutex_);
    if (auto status = fault_of("make_id"); !status.ok()) return status;
    Id made{.number = ++ids_};
    if (options_.between_processes) {
      boards_.push_back(std::make_shared<NcclBoard>());
      made.board = boards_.back()->address();
    }
    std::memcpy(id.data(), &made, sizeof made);
    return {};
  }

  DeviceStatus connect(void*& communicator, const NcclId& id, int rank, int size) override {
    int device = 0;
    if (auto status = device_->current_device(device); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (auto status = fault_of("connect"); !status.ok()) return status;
    Id made;
    std::memcpy(&made, id.data(), sizeof made);
    const bool is_of_processes = made.board.process != 0;
    auto& clique = is_of_processes ? cliques_of_processes_.emplace_back() : cliques_[made.number];
    if (!clique) clique = std::make_shared<Clique>();
    clique->members.resize(static_cast<std::size_t>(size));
    if (is_of_processes) {
      try {
        clique->board = std::make_shared<NcclBoard>(made.board);
      } catch (const std::exception& error) {
        return DeviceStatus::failed(error.what());  // rank 0 has ended
      }
    }
    for (const auto& member : clique->members) {
      if (member && member->device == device) {
        return DeviceStatus::failed("invalid usage (Duplicate GPU detected)");
      }
    }
    auto comm = std::make_shared<Communicator>();
    comm->rank = rank;
    comm->device = device;
    comm->clique = clique.get();
    comm->queries_left = random_.below(options_.most_queries + 1);
    clique->members[static_cast<std::size_t>(rank)] = comm;
    communicator = comm.get();
    communicators_[communicator] = comm;
    if (clique->board) clique->board->connect(static_cast<std::size_t>(rank));
    return {};
  }

  DeviceStatus query(void* communicator, bool& ready) override {
    const Use use(*this, communicator, "query");
    ready = false;
    std::shared_ptr<Launch> launch;
    {
      const std::lock_guard lock(mutex_);
      if (!use.comm) return DeviceStatus::failed("invalid argument");
      if (auto status = fault_of("query"); !status.ok()) return status;
      if (const auto error = errors_.find(use.comm->rank); error != errors_.end()) {
        return DeviceStatus::failed(error->second);
      }
      if (stalled_ && use.comm->waiting) return {};
      if (use.comm->is_finalized && use.comm->is_in_graph) return {};
      if (!use.comm->clique->is_complete()) return {};
      if (use.comm->queries_left > 0) {
        --use.comm->queries_left;
        return {};
      }
      launch = std::exchange(use.comm->waiting, nullptr);
      if (launch) use.comm->launches.push_back(launch);
    }
    if (launch) enqueue(use.comm, launch, use.comm->launches.size() - 1);
    ready = true;
    return {};
  }

  DeviceStatus finalize(void* communicator) override {
    const Use use(*this, communicator, "finalize");
    const std::lock_guard lock(mutex_);
    if (!use.comm) return DeviceStatus::failed("invalid argument");
    use.comm->is_finalized = true;
    use.comm->queries_left = random_.below(options_.most_queries + 1);
    return fault_of("finalize");
  }
  DeviceStatus destroy(void* communicator) override {
    const std::lock_guard lock(mutex_);
    end(communicator, "destroy");
    ++num_destroyed_;
    return fault_of("destroy");
  }
  DeviceStatus abort(void* communicator) override {
    {
      const std::lock_guard lock(mutex_);
      end(communicator, "abort");
      ++num_aborted_;
    }
    device_->poke();  // its work ends now
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const auto found = communicators_.find(communicator);
      return found == communicators_.end() || !found->second->is_in_graph;
    });
    ++num_freed_;
    return fault_of("abort");
  }

  DeviceStatus start_group() override {
    const std::lock_guard lock(mutex_);
    auto& group = groups_[std::this_thread::get_id()];
    if (group.is_open) violations_.emplace_back("a group is opened twice");
    group = {.is_open = true};
    return fault_of("start_group");
  }
  DeviceStatus end_group() override {
    Group group;
    {
      const std::lock_guard lock(mutex_);
      group = std::exchange(groups_[std::this_thread::get_id()], {});
      if (!group.is_open) violations_.emplace_back("a group is closed that is not open");
      if (auto status = fault_of("end_group"); !status.ok()) return status;
    }
    // A group without a call does nothing in NCCL.
    if (!group.comm) return {};
    const bool is_captured = device_->is_capturing(group.stream);
    const std::lock_guard lock(mutex_);
    if (is_captured) group.comm->is_in_graph = true;
    group.comm->waiting = std::make_shared<Launch>();
    group.comm->waiting->calls = std::move(group.calls);
    group.comm->waiting->stream = group.stream;
    group.comm->queries_left = random_.below(options_.most_queries + 1);
    return {};
  }

  DeviceStatus send(const std::byte* from, std::size_t bytes, int to, void* communicator,
                    void* stream) override {
    return add({.kind = Kind::send, .from = from, .bytes = bytes, .peer = to}, communicator, stream,
               "send");
  }
  DeviceStatus receive(std::byte* to, std::size_t bytes, int from, void* communicator,
                       void* stream) override {
    return add({.kind = Kind::receive, .to = to, .bytes = bytes, .peer = from}, communicator,
               stream, "receive");
  }
  DeviceStatus all_gather(std::byte* to, const std::byte* from, std::size_t bytes,
                          void* communicator, void* stream) override {
    return add({.kind = Kind::all_gather, .from = from, .to = to, .bytes = bytes}, communicator,
               stream, "all_gather");
  }
  DeviceStatus all_to_all(std::byte* to, const std::byte* from, std::size_t bytes,
                          void* communicator, void* stream) override {
    return add({.kind = Kind::all_to_all, .from = from, .to = to, .bytes = bytes}, communicator,
               stream, "all_to_all");
  }
  DeviceStatus broadcast(std::byte* memory, std::size_t bytes, int root, void* communicator,
                         void* stream) override {
    return add(
        {.kind = Kind::broadcast, .from = memory, .to = memory, .bytes = bytes, .peer = root},
        communicator, stream, "broadcast");
  }
  DeviceStatus all_reduce(std::byte* to, const std::byte* from, std::size_t count, DType dtype,
                          ReduceOp op, void* communicator, void* stream) override {
    return add({.kind = Kind::all_reduce,
                .from = from,
                .to = to,
                .bytes = count * bytes_of(dtype),
                .reduction = {dtype, op, 0}},
               communicator, stream, "all_reduce");
  }

 private:
  using Kind = NcclCall::Kind;
  // In the bytes of an NcclId.
  struct Id {
    std::uint64_t number = 0;
    NcclBoard::Address board = {};  // of ranks that are processes
  };
  // The calls of one rank that start together.
  struct Launch {
    std::vector<NcclCall> calls;
    void* stream = nullptr;
    bool arrived = false;  // the stream has reached it
    bool done = false;
  };
  struct Clique;
  struct Communicator {
    int rank = 0;
    int device = 0;
    Clique* clique = nullptr;
    std::size_t queries_left = 0;
    std::shared_ptr<Launch> waiting = {};  // not yet enqueued
    std::vector<std::shared_ptr<Launch>> launches = {};
    int users = 0;
    bool ended = false;
    bool is_in_graph = false;
    bool is_finalized = false;
  };
  struct Clique {
    // By rank; null: not connected yet, or in another process.
    std::vector<std::shared_ptr<Communicator>> members;
    std::shared_ptr<NcclBoard> board;  // of ranks that are processes
    [[nodiscard]] bool is_complete() const {
      if (board) return board->is_connected(members.size());
      return std::all_of(members.begin(), members.end(),
                         [](const auto& m) { return m != nullptr; });
    }
  };
  struct Group {
    bool is_open = false;
    std::shared_ptr<Communicator> comm = {};
    void* stream = nullptr;
    std::vector<NcclCall> calls = {};
  };

  // Marks a communicator as in use by the calling thread.
  struct Use {
    Use(NcclDouble& owner, void* communicator, std::string_view function) : nccl(owner) {
      const std::lock_guard lock(nccl.mutex_);
      const auto found = nccl.communicators_.find(communicator);
      if (found == nccl.communicators_.end() || found->second->ended) {
        nccl.violations_.push_back(fmt::format("{} uses a communicator that has ended", function));
        return;
      }
      comm = found->second;
      ++comm->users;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      const std::lock_guard lock(nccl.mutex_);
      if (comm) --comm->users;
    }
    NcclDouble& nccl;
    std::shared_ptr<Communicator> comm = {};
  };

  DeviceStatus fault_of(std::string_view function) {
    return fault_ ? fault_(function) : DeviceStatus();
  }
  DeviceStatus fault_in(std::string_view function) {
    const std::lock_guard lock(mutex_);
    return fault_of(function);
  }

  void end(void* communicator, std::string_view function) {
    const auto found = communicators_.find(communicator);
    if (found == communicators_.end() || found->second->ended) {
      violations_.push_back(fmt::format("{} of a communicator that has ended", function));
      return;
    }
    if (found->second->users > 0) {
      violations_.push_back(fmt::format("{} while another thread is in a call", function));
    }
    found->second->ended = true;
  }

  DeviceStatus add(NcclCall call, void* communicator, void* stream, std::string_view function) {
    const Use use(*this, communicator, function);
    const std::lock_guard lock(mutex_);
    if (!use.comm) return DeviceStatus::failed("invalid argument");
    if (auto status = fault_of(function); !status.ok()) return status;
    auto& group = groups_[std::this_thread::get_id()];
    if (!group.is_open) violations_.push_back(fmt::format("{} outside of a group", function));
    if (use.comm->waiting || use.comm->queries_left > 0) {
      violations_.push_back(fmt::format("{} before the communicator is ready", function));
    }
    group.comm = use.comm;
    group.stream = stream;
    group.calls.push_back(call);
    return {};
  }

  // Enqueues a group of calls. Without mutex_: the device double calls back with its own lock.
  void enqueue(const std::shared_ptr<Communicator>& comm, const std::shared_ptr<Launch>& launch,
               std::size_t number) {
    bool arrives = true;
    {
      const std::lock_guard lock(mutex_);
      arrives = !killed_.contains(comm->rank);
    }
    if (arrives) {
      device_->enqueue(launch->stream, nullptr, [this, comm, launch, number] {
        const std::lock_guard lock(mutex_);
        launch->arrived = true;
        if (!comm->clique->board || comm->ended) return;
        comm->clique->board->arrive(static_cast<std::size_t>(comm->rank), number, launch->calls,
                                    comm->clique->members.size());
      });
    }
    device_->enqueue(
        launch->stream,
        [this, comm, launch, number] {
          const std::lock_guard lock(mutex_);
          return comm->ended || launch->done || all_arrived(*comm->clique, number);
        },
        [this, comm, launch, number] {
          const std::lock_guard lock(mutex_);
          if (!launch->done && all_arrived(*comm->clique, number)) run(*comm->clique, number);
        },
        /*polls=*/true);
  }

  [[nodiscard]] static bool all_arrived(const Clique& clique, std::size_t number) {
    // The work of a rank that has aborted never takes part.
    const auto& members = clique.members;
    if (clique.board) {
      return clique.board->all_arrived(number, members.size()) &&
             std::none_of(members.begin(), members.end(),
                          [](const auto& member) { return member && member->ended; });
    }
    return std::all_of(members.begin(), members.end(), [&](const auto& member) {
      return member && !member->ended && member->launches.size() > number &&
             member->launches[number]->arrived;
    });
  }

  // Executes one group of calls of all ranks. Their streams have all reached it, so that no rank
  // changes its memory meanwhile.
  void run(Clique& clique, std::size_t number) {
    std::vector<std::vector<NcclCall>> collectives;                       // by rank
    std::map<std::pair<int, int>, std::vector<NcclCall>> sent, received;  // by (from, to)
    std::vector<std::unique_ptr<std::byte[]>> unused;
    for (std::size_t at = 0; at < clique.members.size(); ++at) {
      const auto rank = static_cast<int>(at);
      auto& own = collectives.emplace_back();
      for (const auto& call : calls_of(clique, at, number, unused)) {
        if (call.kind == Kind::send) {
          sent[{rank, call.peer}].push_back(call);
        } else if (call.kind == Kind::receive) {
          received[{call.peer, rank}].push_back(call);
        } else {
          own.push_back(call);
        }
      }
    }
    for (auto& [route, calls] : sent) {
      auto& ends = received[route];
      if (ends.size() != calls.size()) return note_mismatch("a send without its receive");
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (ends[i].bytes != calls[i].bytes) return note_mismatch("a send of another size");
        std::memmove(ends[i].to, calls[i].from, calls[i].bytes);
      }
      received.erase(route);
    }
    if (!received.empty()) return note_mismatch("a receive without its send");
    for (std::size_t i = 0; i < collectives[0].size(); ++i) {
      std::vector<NcclCall> calls;
      for (const auto& own : collectives) {
        if (own.size() != collectives[0].size()) return note_mismatch("the number of calls");
        calls.push_back(own[i]);
        const bool same = own[i].kind == calls[0].kind && own[i].bytes == calls[0].bytes;
        if (!same) return note_mismatch("the kind or size of a call");
      }
      run_collective(calls);
    }
  }

  // Those of a rank of this process will not run again.
  static std::vector<NcclCall> calls_of(Clique& clique, std::size_t rank, std::size_t number,
                                        std::vector<std::unique_ptr<std::byte[]>>& unused) {
    const auto& member = clique.members[rank];
    if (!member) return clique.board->calls(rank, number, clique.members.size(), unused);
    auto& launch = *member->launches[number];
    launch.done = true;
    return launch.calls;
  }

  void note_mismatch(const char* what) {
    violations_.push_back(fmt::format("the ranks differ in {}", what));
  }

  static void run_collective(const std::vector<NcclCall>& calls) {
    const auto bytes = calls[0].bytes;
    const bool to_each = calls[0].kind == Kind::all_to_all;
    std::vector<std::vector<std::byte>> inputs;  // copies: outputs may overlap them
    for (const auto& call : calls) {
      inputs.emplace_back(call.from, call.from + bytes * (to_each ? calls.size() : 1));
    }
    if (calls[0].kind == Kind::all_reduce) return run_all_reduce(calls, inputs);
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      if (calls[0].kind == Kind::broadcast) {
        std::memcpy(calls[rank].to, inputs[static_cast<std::size_t>(calls[0].peer)].data(), bytes);
        continue;
      }
      for (std::size_t from = 0; from < calls.size(); ++from) {
        const auto offset = to_each ? rank * bytes : 0;
        std::memcpy(calls[rank].to + from * bytes, inputs[from].data() + offset, bytes);
      }
    }
  }

  // In another order than that of the tree.
  static void run_all_reduce(const std::vector<NcclCall>& calls,
                             const std::vector<std::vector<std::byte>>& inputs) {
    std::vector<const std::byte*> sources;
    for (const auto& input : inputs) sources.insert(sources.begin(), input.data());
    std::vector<std::byte*> outputs;
    for (const auto& call : calls) outputs.push_back(call.to);
    const auto& reduction = calls[0].reduction;
    lockstep::reduce(reduction, TreePlan::over_ranks(static_cast<int>(calls.size())), sources,
                     outputs, calls[0].bytes / bytes_of(reduction.dtype));
  }

  const std::shared_ptr<DeviceDouble> device_;
  const NcclDoubleOptions options_;
  std::mutex mutex_;  // guards all that follows; never held in a call of the device double
  std::condition_variable changed_;
  RandomStream random_;
  DeviceDouble::Fault fault_;
  std::map<int, std::string> errors_;
  std::set<int> killed_;
  bool stalled_ = false;
  std::vector<std::string> violations_;
  std::uint64_t ids_ = 0;
  int num_aborted_ = 0;
  int num_freed_ = 0;
  int num_destroyed_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques_;  // of ranks that are threads
  std::vector<std::shared_ptr<Clique>> cliques_of_processes_;
  std::vector<std::shared_ptr<NcclBoard>> boards_;  // that this process has made
  std::map<void*, std::shared_ptr<Communicator>> communicators_;
  std::map<std::thread::id, Group> groups_;
};

}  // namespace lockstep
