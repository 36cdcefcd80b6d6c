// Four neighboring elements that a thread of the device loads and stores at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

constexpr std::uint32_t kPack = 4;

template <typename T>
struct alignas(sizeof(T) * kPack < 16 ? sizeof(T) * kPack : 16) Pack {
  T element[kPack];
};

/// Whether each address may be accessed as packs.
template <typename... Ts>
__device__ bool are_packed(const Ts*... addresses) {
  return ((reinterpret_cast<std::uintptr_t>(addresses) % alignof(Pack<Ts>) == 0) && ...);
}

template <typename T>
__device__ Pack<T> load_pack(const T* array, std::uint32_t pack) {
  return reinterpret_cast<const Pack<T>*>(array)[pack];
}

template <typename T>
__device__ void store_pack(T* array, std::uint32_t pack, const Pack<T>& value) {
  reinterpret_cast<Pack<T>*>(array)[pack] = value;
}

}  // namespace lockstep
