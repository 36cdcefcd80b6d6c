// A module that its owner may destroy first. A module that a shared_ptr holds, as every
// TORCH_MODULE does, is observed; any other must outlive its observers.
#pragma once

#include <memory>

namespace torch::nn {
class Module;
}

namespace lockstep {

class ObservedModule {
 public:
  explicit ObservedModule(torch::nn::Module& module);

  /// Null when the module is gone.
  [[nodiscard]] torch::nn::Module* get() const noexcept;

 private:
  torch::nn::Module* module_;
  std::weak_ptr<torch::nn::Module> shared_;
  bool is_shared_;
};

}  // namespace lockstep
