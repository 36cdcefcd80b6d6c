// The table of device functions over the CUDA runtime. Stream operations on words are functions of
// the driver, which the runtime looks up: nothing here links the driver's library.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/kernels/device_reduce.h"

namespace lockstep {
namespace {

DeviceStatus status_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  // An error of a launch or of an argument is not reported again by a later, unrelated call.
  (void)cudaGetLastError();
  return DeviceStatus::failed(cudaGetErrorString(error));
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

class CudaFunctions final : public DeviceFunctions {
 public:
  DeviceStatus count_devices(int& count) override { return status_of(cudaGetDeviceCount(&count)); }
  DeviceStatus current_device(int& device) override { return status_of(cudaGetDevice(&device)); }
  DeviceStatus set_device(int device) override { return status_of(cudaSetDevice(device)); }

  DeviceStatus describe(int device, DeviceFacts& facts) override {
    cudaDeviceProp properties{};
    if (auto status = status_of(cudaGetDeviceProperties(&properties, device)); !status.ok()) {
      return status;
    }
    static_assert(sizeof(properties.uuid) == sizeof(facts.uuid));
    std::memcpy(facts.uuid.data(), &properties.uuid, sizeof(facts.uuid));
    int supports_ipc = 0;
    const auto status =
        status_of(cudaDeviceGetAttribute(&supports_ipc, cudaDevAttrIpcEventSupport, device));
    facts.maps_memory = status.ok() && supports_ipc != 0 && batch_of_words() != nullptr;
    return {};
  }

  DeviceStatus reaches(int from, int to, bool& directly) override {
    int can = 0;
    const auto status = status_of(cudaDeviceCanAccessPeer(&can, from, to));
    directly = can != 0;
    return status;
  }

  DeviceStatus make_stream(void*& stream) override {
    int lowest = 0;
    int highest = 0;
    if (auto status = status_of(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
        !status.ok()) {
      return status;
    }
    // Above the caller's streams: a transfer that is ready does not wait for a computation.
    cudaStream_t made = nullptr;
    auto status = status_of(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest));
    stream = made;
    return status;
  }
  DeviceStatus destroy_stream(void* stream) override {
    return status_of(cudaStreamDestroy(stream_of(stream)));
  }
  DeviceStatus query_stream(void* stream, bool& empty) override {
    const auto error = cudaStreamQuery(stream_of(stream));
    empty = error == cudaSuccess;
    return error == cudaErrorNotReady ? DeviceStatus() : status_of(error);
  }
  DeviceStatus synchronize(void* stream) override {
    return status_of(cudaStreamSynchronize(stream_of(stream)));
  }

  bool is_capturing(void* stream) override {
    auto status = cudaStreamCaptureStatusNone;
    // The default stream cannot be asked while another one is captured.
    return status_of(cudaStreamIsCapturing(stream_of(stream), &status)).ok() &&
           status != cudaStreamCaptureStatusNone;
  }

  DeviceStatus make_event(void*& event) override {
    cudaEvent_t made = nullptr;
    auto status = status_of(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event = made;
    return status;
  }
  DeviceStatus destroy_event(void* event) override {
    return status_of(cudaEventDestroy(event_of(event)));
  }
  DeviceStatus record(void* event, void* stream) override {
    return status_of(cudaEventRecord(event_of(event), stream_of(stream)));
  }
  DeviceStatus make_wait(void* stream, void* event) override {
    return status_of(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
  }
  DeviceStatus query_event(void* event, bool& passed) override {
    const auto error = cudaEventQuery(event_of(event));
    passed = error == cudaSuccess;
    return error == cudaErrorNotReady ? DeviceStatus() : status_of(error);
  }

  DeviceStatus allocate(std::size_t bytes, std::byte*& memory) override {
    // In whole units of the driver: memory that is mapped elsewhere shares its unit with no other.
    constexpr std::size_t kUnit = 2U << 20;
    return status_of(cudaMalloc(&memory, (bytes + kUnit - 1) / kUnit * kUnit));
  }
  DeviceStatus release(std::byte* memory) override { return status_of(cudaFree(memory)); }
  DeviceStatus allocate_host(std::size_t bytes, std::byte*& memory) override {
    return status_of(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
  }
  DeviceStatus release_host(std::byte* memory) override { return status_of(cudaFreeHost(memory)); }

  DeviceStatus register_host(std::span<std::byte> memory, std::byte*& on_device) override {
    auto status = status_of(cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterMapped | cudaHostRegisterPortable));
    if (!status.ok()) return status;
    void* address = nullptr;
    status = status_of(cudaHostGetDevicePointer(&address, memory.data(), 0));
    on_device = static_cast<std::byte*>(address);
    return status;
  }
  DeviceStatus unregister_host(std::byte* memory) override {
    return status_of(cudaHostUnregister(memory));
  }

  DeviceStatus export_memory(std::byte* memory, MemoryHandle& handle) override {
    cudaIpcMemHandle_t exported{};
    static_assert(sizeof(exported) == sizeof(handle));
    auto status = status_of(cudaIpcGetMemHandle(&exported, memory));
    std::memcpy(handle.data(), &exported, sizeof(exported));
    return status;
  }
  DeviceStatus open_memory(const MemoryHandle& handle, std::byte*& memory) override {
    cudaIpcMemHandle_t exported{};
    std::memcpy(&exported, handle.data(), sizeof(exported));
    void* opened = nullptr;
    auto status =
        status_of(cudaIpcOpenMemHandle(&opened, exported, cudaIpcMemLazyEnablePeerAccess));
    memory = static_cast<std::byte*>(opened);
    return status;
  }
  DeviceStatus close_memory(std::byte* memory) override {
    return status_of(cudaIpcCloseMemHandle(memory));
  }

  DeviceStatus copy(std::byte* to, const std::byte* from, std::size_t bytes,
                    void* stream) override {
    if (bytes == 0) return {};
    return status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
  }
  DeviceStatus set_zero(std::byte* memory, std::size_t bytes, void* stream) override {
    return status_of(cudaMemsetAsync(memory, 0, bytes, stream_of(stream)));
  }

  DeviceStatus word_actions(std::span<const WordAction> actions, void* stream) override {
    std::vector<CUstreamBatchMemOpParams> batch(actions.size());
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const auto address = reinterpret_cast<CUdeviceptr>(actions[i].word);
      auto& operation = batch[i];
      if (actions[i].kind == WordAction::Kind::write) {
        operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        operation.writeValue.address = address;
        operation.writeValue.value = actions[i].value;
        operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // with a fence before it
      } else {
        operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        operation.waitValue.address = address;
        operation.waitValue.value = actions[i].value;
        operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;  // modulo 2^32
      }
    }
    const auto function = batch_of_words();
    if (function == nullptr) return DeviceStatus::failed("cuStreamBatchMemOp is not available");
    const auto result =
        function(stream_of(stream), static_cast<unsigned>(batch.size()), batch.data(), 0);
    if (result == CUDA_SUCCESS) return {};
    return DeviceStatus::failed("cuStreamBatchMemOp: error " + std::to_string(result));
  }

  DeviceStatus reduce(const Reduction& reduction, const TreePlan& plan,
                      std::span<const std::byte* const> sources,
                      std::span<std::byte* const> destinations, std::size_t count,
                      void* stream) override {
    try {
      launch_reduce(reduction, plan, sources, destinations, count, {stream});
    } catch (const Error& error) {
      return DeviceStatus::failed(error.what());
    }
    return {};
  }

 private:
  using BatchOfWords = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

  // Null if the driver has no such function.
  static BatchOfWords batch_of_words() {
    static const auto function = [] {
      void* found = nullptr;
      cudaDriverEntryPointQueryResult result{};
      constexpr unsigned kVersion = 11070;  // the first with the second form of the function
      const auto error = cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &found, kVersion,
                                                          cudaEnableDefault, &result);
      const bool is_found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
      return is_found ? reinterpret_cast<BatchOfWords>(found) : nullptr;
    }();
    return function;
  }
};

}  // namespace

std::shared_ptr<DeviceFunctions> cuda_functions() { return std::make_shared<CudaFunctions>(); }

}  // namespace lockstep
