// Runs a loop over memory on LibTorch's intra-op threads.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

/// Divides [0, count) into parts and calls part(begin, end) for each, on at::get_num_threads()
/// threads. With one thread, or few elements, calls it once on the calling thread. Every part
/// begins at a multiple of `unit`.
/// Returns when all parts are done. `part` must not throw.
void in_parts(std::size_t count, std::size_t unit,
              const std::function<void(std::size_t begin, std::size_t end)>& part);

}  // namespace lockstep
