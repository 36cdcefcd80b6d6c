#include "cli/train/program/meter.h"

#include <torch/torch.h>

#include <limits>

namespace lockstep::cli {
namespace {

double fraction(Seconds part, Seconds whole) { return whole.count() > 0 ? part / whole : 0; }

}  // namespace

void Meter::add(const StepCost& cost, const Mean& loss) {
  now_.whole += cost.whole;
  now_.data_wait += cost.data_wait;
  now_.exposed += cost.exposed;
  loss_.combine(loss);
  ++interval_steps_;
  split_.steps += cost.whole;
  split_.data_wait += cost.data_wait;
  split_.exposed += cost.exposed;
  ++steps_;
}

double Meter::own_loss() const {
  return loss_.try_value().value_or(std::numeric_limits<double>::quiet_NaN());
}

Interval Meter::read_and_reset(const ProcessGroup& group) {
  Interval interval{.steps = interval_steps_, .loss = loss_};
  interval.data_wait.add(fraction(now_.data_wait, now_.whole));
  interval.worst_data_wait.add(fraction(now_.data_wait, now_.whole));
  interval.exposed.add(fraction(now_.exposed, now_.whole));
  interval.seconds.add(now_.whole.count());
  reduce(group, interval.loss, interval.data_wait, interval.worst_data_wait, interval.exposed,
         interval.seconds);
  last_mean_ = mean_step();
  now_ = {};
  loss_ = {};
  interval_steps_ = 0;
  return interval;
}

Seconds Meter::mean_step() const {
  return interval_steps_ > 0 ? now_.whole / static_cast<double>(interval_steps_) : last_mean_;
}

double matrix_product_speed(at::Device device, at::ScalarType dtype) {
  const std::int64_t size = device.is_cuda() ? 8192 : 512;
  constexpr int rounds = 6;
  const torch::NoGradGuard no_grad;
  // On the CPU always in float32: its 16-bit products are not faster on every processor.
  const auto a = torch::full({size, size}, 0.5F,
                             torch::dtype(device.is_cuda() ? dtype : at::kFloat).device(device));
  auto out = torch::mm(a, a);
  double best = 0;
  for (int i = 0; i < rounds; ++i) {
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
    const auto begin = std::chrono::steady_clock::now();
    at::mm_out(out, a, a);
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
    const Seconds spent = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * static_cast<double>(size * size * size) / spent.count());
  }
  return best;
}

}  // namespace lockstep::cli
