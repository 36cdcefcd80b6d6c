// The device of a memory span, for rooms that do not use LibTorch. A stream of a GPU is a void*:
// its cudaStream_t, null for the default stream.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  // of the GPU

  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:1".
[[nodiscard]] inline std::string to_string(const Device& device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace lockstep
