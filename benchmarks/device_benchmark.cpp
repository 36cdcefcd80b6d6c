// Passes over device memory beside LibTorch's kernels for the same work, on the parameters of a
// GPT-2 of 124 million. Interleaved rounds; the medians are printed, with the share of the rate of
// a copy in the same run.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bars.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/kernels/squares.h"

namespace {

constexpr int kRounds = 7;
constexpr int kRepeats = 20;

std::vector<std::int64_t> gpt2_sizes() {
  std::vector<std::int64_t> sizes{50304LL * 768, 1024 * 768};
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::int64_t size : {768, 768, 768 * 2304, 2304, 768 * 768, 768, 768, 768,
                                    768 * 3072, 3072, 3072 * 768, 768}) {
      sizes.push_back(size);
    }
  }
  sizes.insert(sizes.end(), {768, 768});
  return sizes;
}

// A table of chunks in device memory.
struct Table {
  at::Tensor memory;
  lockstep::DeviceChunks chunks;

  Table(const std::vector<std::int64_t>& sizes, std::size_t longest) {
    std::vector<lockstep::DeviceChunk> list;
    std::uint64_t begin = 0;
    for (const auto size : sizes) {
      for (std::int64_t at = 0; at < size; at += static_cast<std::int64_t>(longest)) {
        const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(longest), size - at);
        const auto first = begin + static_cast<std::uint64_t>(at);
        list.push_back({first, first, static_cast<std::uint32_t>(count), 0});
      }
      begin += static_cast<std::uint64_t>(size);
    }
    const auto bytes = static_cast<std::int64_t>(list.size() * sizeof(list[0]));
    memory = at::from_blob(list.data(), {bytes}, at::kByte).to(at::kCUDA);
    chunks = {static_cast<const lockstep::DeviceChunk*>(memory.data_ptr()), list.size()};
  }
};

struct Case {
  std::string name;
  double bytes = 0;
  std::function<void()> run;
  std::vector<double> times = {};  // ms
};

double time_of(const std::function<void()>& run) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  run();
  begin.record();
  for (int i = 0; i < kRepeats; ++i) run();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / kRepeats;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// The begin and end of each parameter, one after the other.
at::Tensor slot_table(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> ends;
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    ends.insert(ends.end(), {begin, begin + size});
    begin += size;
  }
  return at::tensor(ends).to(at::kCUDA);
}

}  // namespace

int main() {
  if (!at::hasCUDA()) {
    fmt::print("no GPU on this machine\n");
    return 0;
  }
  using lockstep::BFloat16;
  const auto sizes = gpt2_sizes();
  std::int64_t total = 0;
  for (const auto size : sizes) total += size;
  const auto count = static_cast<std::size_t>(total);
  const auto wide = at::device(at::kCUDA).dtype(at::kFloat);
  const auto values = at::randn({total}, wide), gradients = at::randn({total}, wide) * 0.01;
  const auto averages = at::zeros({total}, wide), squares = at::zeros({total}, wide);
  const auto halves = values.to(at::kBFloat16), half_gradients = gradients.to(at::kBFloat16);
  const auto masters = values.clone(), target = at::empty_like(values);

  const Table chunks(sizes, lockstep::kDeviceChunk);
  lockstep::AdamStep step{.kept = 0.9997, .step_size = 3e-4, .root_factor = 1.1};
  const auto steps = at::from_blob(&step, {sizeof(step)}, at::kByte).to(at::kCUDA);
  const auto slots = slot_table(sizes);
  const lockstep::DeviceSlots slot_list{data<lockstep::DeviceSlot>(slots), sizes.size()};
  // The last key is that of the last slot in the last block (device_passes.h).
  const auto num_cells = sizes.size() + (count - 1) / lockstep::kCellElements<float>;
  const auto sums = at::zeros({static_cast<std::int64_t>(num_cells)}, wide.dtype(at::kDouble));
  const auto runs = at::zeros({static_cast<std::int64_t>(lockstep::num_runs(num_cells))},
                              wide.dtype(at::kDouble));
  const auto norm = at::zeros({3}, wide.dtype(at::kDouble));
  const lockstep::DeviceStream stream{c10::cuda::getCurrentCUDAStream().stream()};

  const auto parts_of = [&](const at::Tensor& tensor) { return tensor.split_with_sizes(sizes); };
  const auto value_list = parts_of(values.clone()), gradient_list = parts_of(gradients);
  const auto average_list = parts_of(averages.clone()), square_list = parts_of(squares.clone());
  const std::vector<at::Tensor> step_list(sizes.size(), at::ones({}, wide));

  const auto n = static_cast<double>(total);
  std::vector<Case> cases;
  cases.push_back({"copy", 8 * n, [&] { target.copy_(values); }});
  cases.push_back({"AdamW float32", 28 * n, [&] {
                     lockstep::launch_adam<float>(
                         {data<float>(values), data<float>(gradients), data<float>(averages),
                          data<float>(squares), nullptr, count},
                         chunks.chunks, data<lockstep::AdamStep>(steps), nullptr, stream);
                   }});
  cases.push_back({"  _fused_adamw_", 28 * n, [&] {
                     at::_fused_adamw_(value_list, gradient_list, average_list, square_list, {},
                                       step_list, 3e-4, 0.9, 0.999, 0.1, 1e-8, false, false);
                   }});
  cases.push_back({"AdamW bfloat16 + masters", 30 * n, [&] {
                     lockstep::launch_adam<BFloat16>(
                         {data<BFloat16>(halves), data<BFloat16>(half_gradients),
                          data<float>(averages), data<float>(squares), data<float>(masters), count},
                         chunks.chunks, data<lockstep::AdamStep>(steps), nullptr, stream);
                   }});
  cases.push_back({"norm of the gradients", 4 * n, [&] {
                     lockstep::launch_cells<float>(data<float>(gradients), 0, count, slot_list,
                                                   {0, data<double>(sums), num_cells}, stream);
                     lockstep::launch_norm({data<double>(sums), num_cells}, data<double>(runs), 1,
                                           data<lockstep::DeviceNorm>(norm), stream);
                   }});
  cases.push_back({"  _foreach_norm", 4 * n, [&] { at::_foreach_norm(gradient_list, 2); }});
  for (int round = 0; round < kRounds; ++round) {
    for (auto& each : cases) each.times.push_back(time_of(each.run));
  }
  const double copy_rate = cases[0].bytes / median(cases[0].times);
  fmt::print("{:<26} {:>8} {:>16} {:>8} {:>14}\n", "", "ms", "min to max", "TB/s", "share of copy");
  for (const auto& each : cases) {
    const auto [least, most] = std::minmax_element(each.times.begin(), each.times.end());
    const double ms = median(each.times);
    fmt::print("{:<26} {:8.3f} {:>16} {:8.2f} {:13.0f}%\n", each.name, ms,
               fmt::format("{:.3f} to {:.3f}", *least, *most), each.bytes / ms / 1e9,
               100 * each.bytes / ms / copy_rate);
  }
  const auto share = [&](const Case& each) {
    return 100 * each.bytes / median(each.times) / copy_rate;
  };
  const auto bar_of_share = [&](const Case& each, double least) {
    lockstep::print_bar(each.name + ", 124 M: share of copy bandwidth",
                        fmt::format("{:.0f} %", share(each)), fmt::format(">= {:.0f} %", least),
                        share(each) >= least);
  };
  const auto& adam = cases[1];
  const auto& fused = cases[2];
  bar_of_share(adam, 85);
  bar_of_share(cases[3], 75);
  const double ratio = median(fused.times) / median(adam.times);
  lockstep::print_bar("AdamW float32, 124 M: against _fused_adamw_", fmt::format("{:.2f}", ratio),
                      ">= 1.0", ratio >= 1);
}
