#include "tests/gpu/count_waits.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

namespace {

std::atomic<long> synchronizations = 0;
std::atomic<long> copies = 0;
std::atomic<long> frees = 0;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_pageable(const void* memory) {
  static auto* const attributes_of =
      next<decltype(cudaPointerGetAttributes)>("cudaPointerGetAttributes");
  cudaPointerAttributes attributes{};
  return attributes_of(&attributes, memory) != cudaSuccess ||
         attributes.type == cudaMemoryTypeUnregistered;
}

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

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static auto* const real = next<decltype(cudaMemcpyAsync)>("cudaMemcpyAsync");
  if (waits(to, from, kind)) ++copies;
  return real(to, from, bytes, kind, stream);
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

}  // extern "C"
