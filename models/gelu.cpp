#include <torch/torch.h>

#include "models/gelu_internal.h"

namespace lockstep::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// On aarch64 LibTorch 2.11 leaves this operator to a kernel that computes value by value: a third
// of a small GPT's step in bfloat16. Made of operators that compute in vectors, in float32, it
// takes a tenth of that; backward is LibTorch's own, which is quick.
#ifdef __aarch64__
constexpr bool kOwnIsQuicker = true;
#else
constexpr bool kOwnIsQuicker = false;
#endif

constexpr double kRootOfTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

struct Gelu : public torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const auto wide = x.to(at::kFloat);
    auto inner = wide * wide;
    inner.mul_(kRootOfTwoOverPi * kCubic).add_(kRootOfTwoOverPi).mul_(wide).tanh_();
    return inner.add_(1).mul_(0.5).mul_(wide).to(x.scalar_type());  // halved first: no overflow
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {at::gelu_backward(gradients[0], saved[0], "tanh")};
  }
};

}  // namespace

at::Tensor gelu_by_tanh(const at::Tensor& x) {
  if (kOwnIsQuicker && x.is_cpu() && x.scalar_type() == at::kBFloat16) return Gelu::apply(x);
  return at::gelu(x, "tanh");
}

}  // namespace lockstep::models
