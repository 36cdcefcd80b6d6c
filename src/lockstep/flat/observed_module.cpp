#include "lockstep/flat/observed_module.h"

#include <torch/nn/module.h>

namespace lockstep {

ObservedModule::ObservedModule(torch::nn::Module& module)
    : module_(&module), shared_(module.weak_from_this()), is_shared_(!shared_.expired()) {}

torch::nn::Module* ObservedModule::get() const noexcept {
  return is_shared_ && shared_.expired() ? nullptr : module_;
}

}  // namespace lockstep
