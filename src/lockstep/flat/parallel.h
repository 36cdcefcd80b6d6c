// Loops over memory, cut into parts for the threads of LibTorch's own operators.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

/// Calls part(begin, end) for parts of [0, count) that together are all of it, each on one of
/// at::get_num_threads() threads; with one thread, or few elements, once on the calling thread.
/// Every part but the last one begins and ends at a multiple of `unit`.
/// Returns when all parts are done. `part` does not throw.
void in_parts(std::size_t count, std::size_t unit,
              const std::function<void(std::size_t begin, std::size_t end)>& part);

}  // namespace lockstep
