// For tests of this room: a part of a graph that is computed again in backward, which goes backward
// inside backward, as re-entrant checkpointing does it.
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

// body(x), computed again in backward. The result's graph keeps `body`.
inline at::Tensor recomputed(const at::Tensor& x, Body body) {
  const auto kept = std::make_shared<const Body>(std::move(body));
  auto y = Recomputed::apply(x, kept.get());
  if (y.requires_grad()) y.register_hook([kept](const at::Tensor& gradient) { return gradient; });
  return y;
}

}  // namespace lockstep
