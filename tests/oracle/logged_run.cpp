// logged_run FOLDER: writes the metrics of a run of 8 steps that was killed after step 6 and
// resumed after step 4, for metrics_agreement.py to read with TensorBoard's own reader.
#include <cstdio>
#include <limits>

#include "lockstep/metrics/metrics_log.h"

namespace {

using namespace lockstep;

void train(MetricsLog& log, int first, int last, double from) {
  for (int step = first; step <= last; ++step) {
    log.write(
        {.step = step, .metrics = {{"loss", from / step}, {"tokens", std::int64_t{1000} * step}}});
    if (step % 2 == 0) {
      log.write({.step = step,
                 .kind = MetricKind::eval,
                 .metrics = {{"loss", from / step + 0.25}, {"sample", "step ünd **bold**\n"}}});
    }
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments != 2) {
    std::fputs("usage: logged_run FOLDER\n", stderr);
    return 2;
  }
  {
    MetricsLog log(arguments[1]);
    train(log, 1, 6, 6.0);
  }
  MetricsLog log(arguments[1], {.after = 4});
  train(log, 5, 8, 60.0);
  log.write({.step = 8,
             .kind = MetricKind::event,
             .metrics = {{"odd", std::numeric_limits<double>::infinity()}, {"ended", "finished"}}});
  return 0;
}
