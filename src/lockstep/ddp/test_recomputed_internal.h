// For tests of this room: re-entrant activation checkpointing, which recomputes a part of the graph
// and runs a nested backward inside backward.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace lockstep {

using Body = std::function<at::Tensor(const at::Tensor&)>;

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Body* body) {
    context->save_for_backward({x});
    context->saved_data["body"] = reinterpret_cast<std::int64_t>(body);
    const torch::NoGradGuard off;
    return (*body)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* body = reinterpret_cast<const Body*>(context->saved_data["body"].toInt());
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode on(true);
    (*body)(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

// body(x), recomputed in backward. The graph of the result holds `body`.
inline at::Tensor recomputed(const at::Tensor& x, Body body) {
  const auto kept = std::make_shared<const Body>(std::move(body));
  auto y = Recomputed::apply(x, kept.get());
  if (y.requires_grad()) y.register_hook([kept](const at::Tensor& gradient) { return gradient; });
  return y;
}

}  // namespace lockstep
