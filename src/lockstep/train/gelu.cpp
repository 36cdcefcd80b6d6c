#include "lockstep/train/gelu.h"

#include <ATen/TensorIterator.h>
#include <torch/torch.h>

#include "lockstep/kernels/gelu_pass.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_own_pass(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Calls pass(data, count) for parts of dense tensors of one shape and type T, where `data` points
// to the first element of each, on LibTorch's intra-op threads.
template <typename T, typename Pass>
void in_parts(at::TensorIteratorConfig& tensors, const Pass& pass) {
  tensors.build().for_each([&](char** data, const std::int64_t* strides, std::int64_t count) {
    TORCH_INTERNAL_ASSERT(count <= 1 || strides[0] == sizeof(T));
    pass(data, static_cast<std::size_t>(count));
  });
}

template <typename T>
void compute(const at::Tensor& y, const at::Tensor& x) {
  in_parts<T>(at::TensorIteratorConfig().add_output(y).add_const_input(x),
              [](char** data, std::size_t count) {
                gelu_pass<T>({reinterpret_cast<const T*>(data[1]), count},
                             {reinterpret_cast<T*>(data[0]), count});
              });
}

template <typename T>
void compute_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) {
  in_parts<T>(at::TensorIteratorConfig().add_output(dx).add_const_input(dy).add_const_input(x),
              [](char** data, std::size_t count) {
                gelu_gradient_pass<T>({reinterpret_cast<const T*>(data[1]), count},
                                      {reinterpret_cast<const T*>(data[2]), count},
                                      {reinterpret_cast<T*>(data[0]), count});
              });
}

struct Gelu : public torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    context->save_for_backward({given});
    const auto x = given.contiguous();
    const auto y = at::empty_like(x);
    x.scalar_type() == at::kFloat ? compute<float>(y, x) : compute<BFloat16>(y, x);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto given = context->get_saved_variables()[0];
    // With create_graph: LibTorch's operator, which is differentiable itself.
    if (at::GradMode::is_enabled()) return {at::gelu_backward(gradients[0], given, "tanh")};
    const auto x = given.contiguous();
    const auto dy = gradients[0].contiguous();
    const auto dx = at::empty_like(x);
    x.scalar_type() == at::kFloat ? compute_gradient<float>(dx, dy, x)
                                  : compute_gradient<BFloat16>(dx, dy, x);
    return {dx};
  }
};

}  // namespace

at::Tensor gelu_by_tanh(const at::Tensor& x) {
  return has_own_pass(x) ? Gelu::apply(x) : at::gelu(x, "tanh");
}

}  // namespace lockstep
