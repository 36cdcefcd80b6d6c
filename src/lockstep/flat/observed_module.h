// A reference to a module that its owner may destroy first. The destruction of a module in a
// shared_ptr, which every TORCH_MODULE holder has, is noticed; any other module must outlive its
// ObservedModule.
#pragma once

#include <memory>

namespace torch::nn {
class Module;
}

namespace lockstep {

class ObservedModule {
 public:
  explicit ObservedModule(torch::nn::Module& module);

  /// Null when the module has been destroyed.
  [[nodiscard]] torch::nn::Module* get() const noexcept;

 private:
  torch::nn::Module* module_;
  std::weak_ptr<torch::nn::Module> shared_;
  bool is_shared_;
};

}  // namespace lockstep
