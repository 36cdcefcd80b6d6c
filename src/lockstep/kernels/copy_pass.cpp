#include "lockstep/kernels/copy_pass.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lockstep/kernels/line_store_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

template <InstructionSet Set>
void CopyLoops<Set>::copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using Store = StreamingStore;
  using Register [[gnu::vector_size(Store::kBytes)]] = char;
  if (bytes == 0) return;  // the pointers may be null
  if constexpr (std::is_same_v<Store, CachedStore>) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kLine);
  std::memcpy(to, from, before);
  const auto end = before + (bytes - before) / kLine * kLine;
  for (auto line = before; line < end; line += kLine) {
    Store::begin_line(from + line);
    for (std::size_t part = 0; part < kLine; part += Store::kBytes) {
      Register bits;
      std::memcpy(&bits, from + line + part, sizeof(bits));
      Store::write(to + line + part, bits);
    }
  }
  Store::finish();
  std::memcpy(to + end, from + end, bytes - end);
}

template struct CopyLoops<kCompiledFor>;

}  // namespace lockstep
