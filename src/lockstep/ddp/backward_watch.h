// When does a backward end? Autograd tells only from inside: a callback can be asked for while a
// graph runs, belongs to the innermost graph that does, and is dropped uncalled when that ends by
// an exception. Graphs may be nested (a backward inside a backward), and only the end of the
// outermost one is the end: until then it is not certain which gradients do not come.
#pragma once

#include <memory>

namespace lockstep {

class BackwardWatch {
 public:
  /// Hears of each backward, on the thread that runs it: of its end or its failure.
  class Listener {
   public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    virtual ~Listener() = default;

    /// No more gradients come. What this throws, backward() throws, after failed().
    virtual void ended() = 0;
    /// All watches of this backward have heard ended(); then they hear this, in the order in which
    /// they were made, which is the same on all ranks: here a listener may wait for other ranks.
    /// What this throws, backward() throws, after failed().
    virtual void settle() = 0;
    /// The backward, ended() or settle() threw.
    virtual void failed() noexcept = 0;
  };

  /// `listener` outlives it.
  explicit BackwardWatch(Listener& listener);
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;
  ~BackwardWatch();

  /// Call this in every hook: the first begins the watch.
  void on_backward();
  /// From the first on_backward() until settle() has returned or failed() is called.
  [[nodiscard]] bool is_running() const noexcept;

 private:
  struct Shared;
  class EndOfGraph;
  class Settling;
  class OuterGraphHook;

  std::shared_ptr<Shared> shared_;  // with callbacks and hooks in graphs, which may outlive this
};

}  // namespace lockstep
