#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {
namespace {

thread_local CountMovedBytes* innermost = nullptr;

}  // namespace

CountMovedBytes::CountMovedBytes() noexcept : outer_(innermost) { innermost = this; }
CountMovedBytes::~CountMovedBytes() { innermost = outer_; }

void note_moved(const MovedBytes& moved) noexcept {
  if (innermost == nullptr) return;
  auto& bytes = innermost->bytes_;
  bytes.loaded += moved.loaded;
  bytes.stored += moved.stored;
  bytes.reloaded += moved.reloaded;
}

}  // namespace lockstep
