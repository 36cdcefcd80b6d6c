#include "lockstep/gpu/copy_timer.h"

#include <chrono>
#include <utility>

#include "lockstep/gpu/device_context_internal.h"

namespace lockstep {
namespace {

constexpr int kAnyDevice = 0;  // of a copy within the host

// Memory at one end of a copy: pinned on the host, or on a device.
class End {
 public:
  End(DeviceFunctions& functions, const std::optional<int>& device, std::size_t bytes)
      : functions_(functions), device_(device) {
    const DeviceScope selected(functions_, device_.value_or(kAnyDevice));
    expect(device_ ? functions_.allocate(bytes, memory_) : functions_.allocate_host(bytes, memory_),
           "memory for a copy");
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() { (void)(device_ ? functions_.release(memory_) : functions_.release_host(memory_)).ok(); }
  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }

 private:
  DeviceFunctions& functions_;
  std::optional<int> device_;
  std::byte* memory_ = nullptr;
};

class DeviceCopyTimer final : public CopyTimer {
 public:
  explicit DeviceCopyTimer(std::shared_ptr<DeviceFunctions> functions)
      : functions_(std::move(functions)) {
    expect(functions_->count_devices(num_devices_), "the number of devices");
  }

  [[nodiscard]] int num_devices() const override { return num_devices_; }

  [[nodiscard]] bool has_peer_access(int from, int to) const override {
    bool directly = false;
    expect(functions_->reaches(from, to, directly), "the reach of a device");
    return directly;
  }

  [[nodiscard]] double seconds(const CopyPath& path, std::size_t bytes, int repetitions) override {
    const int device = path.to ? *path.to : path.from.value_or(kAnyDevice);
    const auto context = std::make_shared<DeviceContext>(functions_, device);
    const End from(*functions_, path.from, bytes);
    const End to(*functions_, path.to, bytes);
    const End back_from(*functions_, path.to, path.both_ways ? bytes : 1);
    const End back_to(*functions_, path.from, path.both_ways ? bytes : 1);
    const DeviceScope selected(*functions_, device);
    void* const stream = context->stream();
    void* const back = context->message_stream();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) {
      expect(functions_->copy(to.memory(), from.memory(), bytes, stream), "a copy");
      if (!path.both_ways) continue;
      expect(functions_->copy(back_to.memory(), back_from.memory(), bytes, back), "a copy");
    }
    expect(functions_->synchronize(stream), "a copy");
    expect(functions_->synchronize(back), "a copy");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  std::shared_ptr<DeviceFunctions> functions_;
  int num_devices_ = 0;
};

}  // namespace

std::unique_ptr<CopyTimer> make_copy_timer(std::shared_ptr<DeviceFunctions> functions) {
  return std::make_unique<DeviceCopyTimer>(std::move(functions));
}

}  // namespace lockstep
