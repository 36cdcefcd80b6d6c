// The gradients that have arrived for slots on a GPU and are not there yet. They are copied or
// added together: one launch instead of one per parameter. The same launch notes which of them are
// non-finite.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep {

/// Several threads may use it: when a backward has failed, autograd's thread of the device may
/// still hold its last reference to the graph.
class DeviceGather {
 public:
  explicit DeviceGather(std::size_t num_parameters) : waits_(num_parameters, false) {}

  /// `gradient` goes to `slot`, in the order of the current stream. Both are dense, with the same
  /// dtype and strides. `adds`: it is added to what is there.
  void add(int parameter, const at::Tensor& slot, const at::Tensor& gradient, bool adds);
  /// Enqueues everything added so far. The device's current stream then sees it.
  void flush();

  /// The next launch begins new notes of non-finite gradients.
  void begin_notes();
  /// By parameter, whether a launch since the last begin_notes() wrote a non-finite value; before
  /// the first launch after it, the notes before. Waits for the device.
  [[nodiscard]] std::vector<bool> read_notes();

 private:
  struct Arrived {
    int parameter = 0;
    at::Tensor slot;
    at::Tensor gradient;  // kept until the launch
    bool adds = false;
  };

  void flush_locked();
  void launch(at::ScalarType dtype);
  [[nodiscard]] at::Tensor& notes_on(at::Device device);

  std::mutex mutex_;
  std::vector<Arrived> arrived_;
  std::size_t bytes_ = 0;              // of arrived_
  std::vector<bool> waits_;            // by parameter: it is in arrived_
  std::optional<c10::Stream> stream_;  // on which they arrived
  std::vector<at::Tensor> notes_;      // by device: int32, one per parameter
  bool notes_are_old_ = false;
};

}  // namespace lockstep
