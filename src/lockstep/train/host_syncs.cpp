#include "lockstep/train/host_syncs.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <string_view>
#include <utility>

namespace lockstep {
namespace {

// The text of c10::cuda::warn_or_error_on_sync(). Other warnings are passed on.
constexpr std::string_view kSyncWarning = "called a synchronizing CUDA operation";

class Counter final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (std::string_view(warning.msg()).find(kSyncWarning) != std::string_view::npos) {
      ++count_;
    } else {
      passed_to_->process(warning);
    }
  }
  std::int64_t read_and_reset() noexcept { return std::exchange(count_, 0); }

 private:
  c10::WarningHandler* const passed_to_ = c10::WarningUtils::get_warning_handler();
  std::int64_t count_ = 0;
};

}  // namespace

struct HostSyncs::State {
  Counter counter;
  c10::WarningUtils::WarningHandlerGuard guard{&counter};
  c10::cuda::SyncDebugMode before = c10::cuda::warning_state().get_sync_debug_mode();
};

HostSyncs::HostSyncs() : state_(std::make_unique<State>()) {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
}
HostSyncs::~HostSyncs() { c10::cuda::warning_state().set_sync_debug_mode(state_->before); }

std::int64_t HostSyncs::read_and_reset() noexcept { return state_->counter.read_and_reset(); }

}  // namespace lockstep
