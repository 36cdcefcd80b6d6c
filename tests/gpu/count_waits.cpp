#include "tests/gpu/count_waits.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

std::atomic<long> synchronizations = 0;
std::atomic<long> copies = 0;
std::atomic<long> frees = 0;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The CUDA runtime loads the driver without showing its functions to others.
template <typename Function>
Function* driver(const char* name) {
  if (auto* const found = next<Function>(name)) return found;
  static auto* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

cudaMemoryType type_of(const void* memory) {
  static auto* const attributes_of =
      next<decltype(cudaPointerGetAttributes)>("cudaPointerGetAttributes");
  cudaPointerAttributes attributes{};
  const bool is_known = attributes_of(&attributes, memory) == cudaSuccess;
  return is_known ? attributes.type : cudaMemoryTypeUnregistered;
}

bool is_pageable(const void* memory) { return type_of(memory) == cudaMemoryTypeUnregistered; }

bool waits(const void* to, const void* from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDeviceToDevice) return false;
  return is_pageable(to) || is_pageable(from);
}

// A preloaded process tells its count when it ends.
struct AtEnd {
  ~AtEnd() {
    Dl_info self{};
    if (dladdr(reinterpret_cast<const void*>(&is_pageable), &self) == 0) return;
    if (lockstep::count_waits().all() == 0) return;
    const auto path = std::string(self.dli_fname) + "." + std::to_string(::getpid());
    if (auto* const file = std::fopen(path.c_str(), "w")) {
      std::fprintf(file, "%ld %ld %ld\n", synchronizations.load(), copies.load(), frees.load());
      std::fclose(file);
    }
  }
} at_end;

// In place of a function of the driver that a library looks up.
void* counting(std::string_view name);

}  // namespace

namespace lockstep {

Waits count_waits() noexcept { return {synchronizations, copies, frees}; }

}  // namespace lockstep

extern "C" {

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  static auto* const real = next<decltype(cudaStreamSynchronize)>("cudaStreamSynchronize");
  ++synchronizations;
  return real(stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  static auto* const real = next<decltype(cudaEventSynchronize)>("cudaEventSynchronize");
  ++synchronizations;
  return real(event);
}

cudaError_t cudaDeviceSynchronize() {
  static auto* const real = next<decltype(cudaDeviceSynchronize)>("cudaDeviceSynchronize");
  ++synchronizations;
  return real();
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  static auto* const real = next<decltype(cudaMemcpy)>("cudaMemcpy");
  ++copies;
  return real(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  static auto* const real = next<decltype(cudaMemcpy2D)>("cudaMemcpy2D");
  ++copies;
  return real(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  static auto* const real = next<decltype(cudaMemcpy3D)>("cudaMemcpy3D");
  ++copies;
  return real(copy);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  static auto* const real =
      next<cudaError_t(const void*, const void*, size_t, size_t, cudaMemcpyKind)>(
          "cudaMemcpyToSymbol");
  ++copies;
  return real(symbol, from, bytes, offset, kind);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  static auto* const real =
      next<cudaError_t(void*, const void*, size_t, size_t, cudaMemcpyKind)>("cudaMemcpyFromSymbol");
  ++copies;
  return real(to, symbol, bytes, offset, kind);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static auto* const real = next<decltype(cudaMemcpyAsync)>("cudaMemcpyAsync");
  if (waits(to, from, kind)) ++copies;
  return real(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  static auto* const real = next<decltype(cudaMemcpy2DAsync)>("cudaMemcpy2DAsync");
  if (waits(to, from, kind)) ++copies;
  return real(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

// Of device memory it does not wait.
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  static auto* const real = next<decltype(cudaMemset)>("cudaMemset");
  if (type_of(memory) != cudaMemoryTypeDevice) ++copies;
  return real(memory, value, bytes);
}

cudaError_t cudaFree(void* memory) {
  static auto* const real = next<decltype(cudaFree)>("cudaFree");
  if (memory != nullptr) ++frees;
  return real(memory);
}

cudaError_t cudaFreeHost(void* memory) {
  static auto* const real = next<decltype(cudaFreeHost)>("cudaFreeHost");
  ++frees;
  return real(memory);
}

cudaError_t cudaHostUnregister(void* memory) {
  static auto* const real = next<decltype(cudaHostUnregister)>("cudaHostUnregister");
  ++frees;
  return real(memory);
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  static auto* const real = next<decltype(cudaIpcCloseMemHandle)>("cudaIpcCloseMemHandle");
  ++frees;
  return real(memory);
}

// LibTorch and lockstep call the driver through this function.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  static auto* const real =
      next<cudaError_t(const char*, void**, unsigned, unsigned long long,
                       cudaDriverEntryPointQueryResult*)>("cudaGetDriverEntryPointByVersion");
  const auto error = real(name, function, version, flags, result);
  if (error != cudaSuccess || *function == nullptr) return error;
  if (auto* const own = counting(name)) *function = own;
  return error;
}

// Functions of the driver. Those of the runtime that are counted above reach it by other ways, so
// that a wait is counted once.

CUresult cuStreamSynchronize(CUstream stream) {
  static auto* const real = driver<decltype(cuStreamSynchronize)>("cuStreamSynchronize");
  ++synchronizations;
  return real(stream);
}

CUresult cuEventSynchronize(CUevent event) {
  static auto* const real = driver<decltype(cuEventSynchronize)>("cuEventSynchronize");
  ++synchronizations;
  return real(event);
}

CUresult cuCtxSynchronize() {
  static auto* const real = driver<CUresult()>("cuCtxSynchronize");
  ++synchronizations;
  return real();
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  static auto* const real = driver<decltype(cuMemcpy)>("cuMemcpy");
  ++copies;
  return real(to, from, bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  static auto* const real = driver<decltype(cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  ++copies;
  return real(to, from, bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  static auto* const real = driver<decltype(cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2");
  ++copies;
  return real(to, from, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
  static auto* const real = driver<decltype(cuMemFree_v2)>("cuMemFree_v2");
  ++frees;
  return real(memory);
}

CUresult cuMemFreeHost(void* memory) {
  static auto* const real = driver<decltype(cuMemFreeHost)>("cuMemFreeHost");
  ++frees;
  return real(memory);
}

}  // extern "C"

namespace {

void* counting(std::string_view name) {
  struct Counted {
    std::string_view name;
    void* function;
  };
  static const std::array kCounted{
      Counted{"cuStreamSynchronize", reinterpret_cast<void*>(&cuStreamSynchronize)},
      Counted{"cuEventSynchronize", reinterpret_cast<void*>(&cuEventSynchronize)},
      Counted{"cuCtxSynchronize", reinterpret_cast<void*>(&cuCtxSynchronize)},
      Counted{"cuMemcpy", reinterpret_cast<void*>(&cuMemcpy)},
      Counted{"cuMemcpyDtoH", reinterpret_cast<void*>(&cuMemcpyDtoH_v2)},
      Counted{"cuMemcpyHtoD", reinterpret_cast<void*>(&cuMemcpyHtoD_v2)},
      Counted{"cuMemFree", reinterpret_cast<void*>(&cuMemFree_v2)},
      Counted{"cuMemFreeHost", reinterpret_cast<void*>(&cuMemFreeHost)}};
  for (const auto& each : kCounted) {
    if (each.name == name) return each.function;
  }
  return nullptr;
}

}  // namespace
