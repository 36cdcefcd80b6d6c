#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "lockstep/gpu/end_word_internal.h"

namespace lockstep {

EndWord::EndWord(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {
  expect(context_->functions().allocate_host(sizeof(std::uint32_t), word_), "pinned memory");
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(word_)).store(0);
}

EndWord::~EndWord() {
  if (!is_awaited()) (void)context_->functions().release_host(word_);
}

std::uint32_t EndWord::write(void* stream) {
  const std::lock_guard lock(mutex_);
  const std::array actions{WordAction{WordAction::Kind::write, word_, ++written_}};
  expect(context_->functions().word_actions(actions, stream), "to mark the end of a call");
  return written_;
}

void EndWord::make_wait(void* stream, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const std::array actions{WordAction{WordAction::Kind::wait, word_, number}};
  expect(context_->functions().word_actions(actions, stream), "a wait for the end of a call");
  last_wait_[stream] = context_->record(stream);
}

// A device that has failed executes nothing.
bool EndWord::is_awaited() const noexcept {
  return std::any_of(last_wait_.begin(), last_wait_.end(), [this](const auto& wait) {
    bool passed = false;
    return context_->functions().query_event(wait.second.get(), passed).ok() && !passed;
  });
}

}  // namespace lockstep
