#include "lockstep/ddp/backward_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

namespace autograd = torch::autograd;

struct BackwardWatch::Shared final : std::enable_shared_from_this<Shared> {
  void attend();
  void end_of_graph();
  void fail() noexcept;

  Listener* listener = nullptr;  // null when the watch is gone
  bool running = false;
  std::uint64_t number = 0;  // of the backward
  int watched_task = -1;     // the graph that has the callback
  std::vector<std::weak_ptr<autograd::Node>> hooked;
};

// A callback at the end of a graph. It dies with the graph, called or not.
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
      shared->end_of_graph();
    } catch (...) {
      shared->fail();
      throw;
    }
  }

  // Null when that backward is over.
  [[nodiscard]] std::shared_ptr<Shared> concerned() const {
    auto shared = shared_.lock();
    const bool is_over =
        !shared || shared->listener == nullptr || !shared->running || shared->number != number_;
    return is_over ? nullptr : shared;
  }

  std::weak_ptr<Shared> shared_;
  std::uint64_t number_;
  bool called_ = false;
};

// Runs in the graph around a nested one, and so can ask for a callback at that one's end.
class BackwardWatch::OuterGraphHook final : public autograd::FunctionPreHook {
 public:
  explicit OuterGraphHook(std::weak_ptr<Shared> shared) : shared_(std::move(shared)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (const auto shared = shared_.lock(); shared && shared->running) shared->attend();
    return gradients;
  }

 private:
  std::weak_ptr<Shared> shared_;
};

void BackwardWatch::Shared::attend() {
  if (!running) {
    running = true;
    ++number;
    watched_task = -1;
  }
  const int task = autograd::get_current_graph_task_id();
  if (task == watched_task) return;
  watched_task = task;
  EndOfGraph::queue(shared_from_this());
}

void BackwardWatch::Shared::end_of_graph() {
  if (const auto outer = autograd::get_current_node()) {
    // The graph that ended was nested in the work of this node. What follows it runs in the outer
    // graph, where the next callback can be asked for even if no further gradient comes.
    std::erase_if(hooked, [](const auto& node) { return node.expired(); });
    for (const auto& edge : outer->next_edges()) {
      const auto known = [&](const auto& node) { return node.lock() == edge.function; };
      if (!edge.function || std::any_of(hooked.begin(), hooked.end(), known)) continue;
      edge.function->add_pre_hook(std::make_unique<OuterGraphHook>(weak_from_this()));
      hooked.push_back(edge.function);
    }
    return;
  }
  listener->ended();
  running = false;
}

void BackwardWatch::Shared::fail() noexcept {
  running = false;
  listener->failed();
}

BackwardWatch::BackwardWatch(Listener& listener) : shared_(std::make_shared<Shared>()) {
  shared_->listener = &listener;
}

BackwardWatch::~BackwardWatch() { shared_->listener = nullptr; }

void BackwardWatch::attend() { shared_->attend(); }

bool BackwardWatch::is_running() const noexcept { return shared_->running; }

}  // namespace lockstep
