#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "lockstep/train/surroundings_internal.h"

namespace lockstep {

GeneratorStates GeneratorStates::now(at::Device device) {
  GeneratorStates found;
  const auto note = [&](at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    found.states_.emplace_back(generator, generator.get_state());
  };
  note(at::detail::getDefaultCPUGenerator());
  if (!device.is_cpu()) note(at::globalContext().defaultGenerator(device));
  return found;
}

void GeneratorStates::restore() const {
  for (auto [generator, state] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

AutocastStates AutocastStates::now(at::Device device) {
  AutocastStates found{autocast_state(at::kCPU), {}};
  if (!device.is_cpu()) found.other = autocast_state(device.type());
  return found;
}

BufferValues BufferValues::of(const std::vector<at::Tensor>& buffers) {
  BufferValues values;
  for (const auto& buffer : buffers) {
    if (buffer.defined()) values.values_.emplace_back(buffer, buffer.detach().clone());
  }
  return values;
}

void BufferValues::drop_unchanged() {
  std::erase_if(values_, [](const auto& each) {
    return each.first.is_cpu() && each.first.equal(each.second);
  });
}

BufferValues BufferValues::present() const {
  std::vector<at::Tensor> buffers;
  for (const auto& [buffer, value] : values_) buffers.push_back(buffer);
  return of(buffers);
}

void BufferValues::restore() const {
  for (const auto& [buffer, value] : values_) buffer.variable_data().copy_(value);
}

}  // namespace lockstep
