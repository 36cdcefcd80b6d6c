// Detects the end of a backward(). Autograd offers a callback only from inside: it can be queued
// while a graph runs, belongs to the innermost running graph, and is destroyed without a call when
// that graph ends with an exception. Graphs may be nested (a backward inside a backward). Only at
// the end of the outermost graph it is known which parameters got no gradient.
#pragma once

#include <memory>

namespace lockstep {

class BackwardWatch {
 public:
  /// Is notified of the end or failure of each backward, on the thread that runs it.
  class Listener {
   public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    virtual ~Listener() = default;

    /// All gradients have arrived. If this throws, failed() is called and backward() throws the
    /// same exception.
    virtual void ended() = 0;
    /// Called after ended() of all watches of this backward, in the order in which the watches were
    /// made. That order is equal on all ranks, so a listener may wait for other ranks here.
    /// Throws as ended().
    virtual void settle() = 0;
    /// backward(), ended() or settle() has thrown. With parameters on a GPU this may run after
    /// backward() has thrown (await_end).
    virtual void failed() noexcept = 0;
  };

  /// `listener` must outlive it.
  explicit BackwardWatch(Listener& listener);
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;
  ~BackwardWatch();

  /// Must be called for every gradient; the first call of a backward begins the watch.
  void on_backward();
  /// Returns when failed() of a backward that has thrown has returned, if another thread calls it:
  /// with parameters on a GPU, autograd calls it on its thread of that device, and backward() may
  /// throw earlier. Returns at once inside a backward. Call it before the listener's state is used.
  void await_end() const;
  /// True from the first on_backward() until settle() has returned or failed() is called.
  [[nodiscard]] bool is_running() const noexcept;

 private:
  struct Shared;
  class EndOfGraph;
  class Settling;
  class OuterGraphHook;

  std::shared_ptr<Shared>
      shared_;  // with callbacks and hooks in graphs, which may outlive this object
};

}  // namespace lockstep
