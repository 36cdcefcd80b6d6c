#include "lockstep/ddp/backward_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

namespace autograd = torch::autograd;

struct BackwardWatch::Shared final : std::enable_shared_from_this<Shared> {
  void on_backward();
  /// Returns whether the outermost graph has ended.
  [[nodiscard]] bool end_of_graph();
  void settle();
  void fail() noexcept;

  static std::uint64_t next_order() {
    static std::atomic<std::uint64_t> made = 0;
    return made++;
  }

  /// Returns when no backward runs on another thread.
  void await_end();
  /// Ends the backward. Everything that the listener has done is visible after await_end().
  void become_idle();

  const std::uint64_t order = next_order();
  Listener* listener = nullptr;  // null when the watch has been destroyed
  // A graph that contains nested ones may have several callbacks. The first one called at the end
  // of the outermost graph ends the backward.
  enum class Phase { idle, running, settling };
  std::atomic<Phase> phase = Phase::idle;
  std::mutex mutex;  // for ended, and for the thread
  std::condition_variable ended;
  std::thread::id thread;    // that runs the backward
  std::uint64_t number = 0;  // of the backward
  int watched_task = -1;     // the graph that has the callback
  std::vector<std::weak_ptr<autograd::Node>> hooked;
};

// The watches whose backward has ended on this thread and that have not settled. As many callbacks
// are queued; each one settles the oldest remaining watch.
class BackwardWatch::Settling {
 public:
  static void add(const std::shared_ptr<Shared>& shared) {
    all().push_back({shared, shared->number});
    const auto turn = std::make_shared<Settling>();
    autograd::Engine::get_default_engine().queue_callback([turn] { turn->call(); });
  }
  Settling() = default;
  Settling(const Settling&) = delete;
  Settling& operator=(const Settling&) = delete;
  ~Settling() {
    if (!called_) fail_all();
  }

 private:
  struct Entry {
    std::weak_ptr<Shared> shared;
    std::uint64_t number;
  };

  static std::vector<Entry>& all() {
    thread_local std::vector<Entry> entries;
    return entries;
  }

  static std::shared_ptr<Shared> take_first() {
    auto& entries = all();
    std::erase_if(entries, [](const Entry& entry) {
      const auto shared = entry.shared.lock();
      return !shared || shared->listener == nullptr || shared->phase != Shared::Phase::settling ||
             shared->number != entry.number;
    });
    const auto first =
        std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
          return a.shared.lock()->order < b.shared.lock()->order;
        });
    if (first == entries.end()) return nullptr;
    auto shared = first->shared.lock();
    entries.erase(first);
    return shared;
  }

  // When a callback throws, autograd destroys the remaining ones without calling them.
  static void fail_all() noexcept {
    while (const auto next = take_first()) next->fail();
  }

  void call() {
    called_ = true;
    const auto first = take_first();
    if (!first) return;
    try {
      first->settle();
    } catch (...) {
      first->fail();
      fail_all();
      throw;
    }
  }

  bool called_ = false;
};

// A callback at the end of a graph. It is destroyed with the graph, called or not.
class BackwardWatch::EndOfGraph {
 public:
  explicit EndOfGraph(const std::shared_ptr<Shared>& shared)
      : shared_(shared), number_(shared->number) {}
  EndOfGraph(const EndOfGraph&) = delete;
  EndOfGraph& operator=(const EndOfGraph&) = delete;
  ~EndOfGraph() {
    if (called_) return;
    if (const auto shared = concerned()) shared->fail();
  }

  static void queue(const std::shared_ptr<Shared>& shared) {
    const auto end = std::make_shared<EndOfGraph>(shared);
    autograd::Engine::get_default_engine().queue_callback([end] { end->call(); });
  }

 private:
  void call() {
    called_ = true;
    const auto shared = concerned();
    if (!shared) return;
    try {
      if (shared->end_of_graph()) Settling::add(shared);
    } catch (...) {
      shared->fail();
      throw;
    }
  }

  // Null when that backward has ended.
  [[nodiscard]] std::shared_ptr<Shared> concerned() const {
    auto shared = shared_.lock();
    const bool is_over = !shared || shared->listener == nullptr ||
                         shared->phase != Shared::Phase::running || shared->number != number_;
    return is_over ? nullptr : shared;
  }

  std::weak_ptr<Shared> shared_;
  std::uint64_t number_;
  bool called_ = false;
};

// Runs in the outer graph after a nested one has ended, and queues a callback for the outer
// graph's end.
class BackwardWatch::OuterGraphHook final : public autograd::FunctionPreHook {
 public:
  explicit OuterGraphHook(std::weak_ptr<Shared> shared) : shared_(std::move(shared)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (const auto shared = shared_.lock(); shared && shared->phase == Shared::Phase::running)
      shared->on_backward();
    return gradients;
  }

 private:
  std::weak_ptr<Shared> shared_;
};

void BackwardWatch::Shared::on_backward() {
  if (phase == Phase::idle) {
    const std::lock_guard lock(mutex);
    thread = std::this_thread::get_id();
    phase = Phase::running;
    ++number;
    watched_task = -1;
  }
  const int task = autograd::get_current_graph_task_id();
  if (task == watched_task) return;
  watched_task = task;
  EndOfGraph::queue(shared_from_this());
}

bool BackwardWatch::Shared::end_of_graph() {
  if (const auto outer = autograd::get_current_node()) {
    // The graph that ended was nested inside this node. The node's successors run in the outer
    // graph; a hook there queues the next callback even if no further gradient arrives.
    std::erase_if(hooked, [](const auto& node) { return node.expired(); });
    for (const auto& edge : outer->next_edges()) {
      const auto known = [&](const auto& node) { return node.lock() == edge.function; };
      if (!edge.function || std::any_of(hooked.begin(), hooked.end(), known)) continue;
      edge.function->add_pre_hook(std::make_unique<OuterGraphHook>(weak_from_this()));
      hooked.push_back(edge.function);
    }
    return false;
  }
  listener->ended();
  phase = Phase::settling;
  return true;
}

void BackwardWatch::Shared::settle() {
  listener->settle();
  become_idle();
}

void BackwardWatch::Shared::fail() noexcept {
  listener->failed();
  become_idle();
}

void BackwardWatch::Shared::become_idle() {
  {
    const std::lock_guard lock(mutex);
    phase = Phase::idle;
  }
  ended.notify_all();
}

// Autograd's thread of a device holds the last reference to a failed graph for a moment longer than
// the caller of backward(), and then tells the listener. What the listener does has its own time
// limits, so the wait has an end.
void BackwardWatch::Shared::await_end() {
  std::unique_lock lock(mutex);
  if (thread == std::this_thread::get_id()) return;
  ended.wait(lock, [this] { return phase == Phase::idle; });
}

BackwardWatch::BackwardWatch(Listener& listener) : shared_(std::make_shared<Shared>()) {
  shared_->listener = &listener;
}

BackwardWatch::~BackwardWatch() {
  shared_->await_end();
  shared_->listener = nullptr;
}

void BackwardWatch::on_backward() { shared_->on_backward(); }

void BackwardWatch::await_end() const { shared_->await_end(); }

bool BackwardWatch::is_running() const noexcept { return shared_->phase != Shared::Phase::idle; }

}  // namespace lockstep
