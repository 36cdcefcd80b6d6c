// `lockstep bench data`
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/data/program/verbs.h"
#include "cli/duration.h"
#include "lockstep/base/error.h"
#include "lockstep/data/file_datasets.h"
#include "lockstep/data/loader.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kHelp =
    "lockstep bench data FILE…: measure the data loader without a model\n"
    "\n"
    "  --batch N            samples per batch (default 32)\n"
    "  --window N           tokens per sample, for token files (default 1024)\n"
    "  --normalize          convert images to floats between 0 and 1\n"
    "  --workers N,N        numbers of worker threads to measure; 0: no thread\n"
    "                       (default 0,1,2,4)\n"
    "  --prefetch N         batches to prefetch per worker (default 2)\n"
    "  --step T             simulated time per training step; 0: no step (default 0)\n"
    "  --time T             time per number of workers (default 2s)\n"
    "  --order WORD         native, torch or sequential (default native)\n"
    "\n"
    "Examples\n"
    "  lockstep bench data train.bin --batch 32 --window 256\n"
    "  lockstep bench data images-idx3-ubyte.gz labels-idx1-ubyte.gz --normalize\n"
    "  lockstep bench data train.bin --step 8ms\n";

struct BenchOptions {
  bool help = false;
  std::vector<std::string> files;
  std::int64_t batch = 32;
  std::int64_t window = 1024;
  bool normalize = false;
  std::vector<int> workers{0, 1, 2, 4};
  int prefetch = 2;
  std::chrono::milliseconds step{0};
  std::chrono::milliseconds time{2000};
  OrderKind order = OrderKind::native;
};

BenchOptions read_options(const std::vector<std::string>& arguments) {
  BenchOptions options;
  std::string step = "0ms";
  std::string time = "2s";
  std::string order = "native";
  Arguments declared("bench data", options.help);
  declared.option("files", options.files);
  declared.option("--batch", options.batch);
  declared.option("--window", options.window);
  declared.flag("--normalize", options.normalize);
  declared.option("--workers", options.workers);
  declared.option("--prefetch", options.prefetch);
  declared.option("--step", step);
  declared.option("--time", time);
  declared.option("--order", order);
  declared.read(arguments);
  if (options.help) return options;
  options.step = parse_duration("--step", step);
  options.time = parse_duration("--time", time);
  options.order = std::array{
      OrderKind::native, OrderKind::torch,
      OrderKind::sequential}[read_choice("--order", order, {"native", "torch", "sequential"})];
  return options;
}

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// The time of each part of loading a batch, on one thread.
struct Parts {
  double sample = 0;  // microseconds per batch: choosing the samples
  double read = 0;    // and reading them into allocated memory
};

Parts measure_parts(const Dataset& data, const BenchOptions& options) {
  Sampler sampler(Order(data.size(), {.kind = options.order}), data.id(),
                  {.global_batch = options.batch});
  RowsBuffer buffer(data.layout(), options.batch);
  Clock::duration sampling{};
  Clock::duration reading{};
  std::int64_t count = 0;
  const auto end = Clock::now() + std::min(options.time, std::chrono::milliseconds(500));
  for (; Clock::now() < end || count < 3; ++count) {
    const auto begin = Clock::now();
    const auto shard = sampler.next();
    const auto chosen = Clock::now();
    data.read(shard.samples, buffer.rows(static_cast<std::int64_t>(shard.samples.size())));
    reading += Clock::now() - chosen;
    sampling += chosen - begin;
  }
  const auto batches = static_cast<double>(count);
  return {microseconds(sampling) / batches, microseconds(reading) / batches};
}

struct Measured {
  LoaderTimes times{};
  double seconds = 0;
  std::optional<std::string> advice{};
};

Measured measure(const Dataset& data, const BenchOptions& options, int workers) {
  Loader loader(data, {.batch = {.local = options.batch},
                       .order = {.kind = options.order},
                       .workers = workers,
                       .prefetch = options.prefetch});
  (void)loader.next();  // starts the threads and touches the memory
  const auto before = loader.times();
  const auto begin = Clock::now();
  while (Clock::now() - begin < options.time) {
    (void)loader.next();
    // Sleeps: a step on a device does not use the processor.
    if (options.step.count() > 0) std::this_thread::sleep_for(options.step);
  }
  Measured measured{.times = loader.times(),
                    .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
  measured.times.batches -= before.batches;
  measured.times.samples -= before.samples;
  measured.times.bytes -= before.bytes;
  measured.times.wait -= before.wait;
  measured.times.step -= before.step;
  measured.times.read -= before.read;
  measured.advice =
      loader_advice(measured.times,
                    {.workers = workers,
                     .prefetch = options.prefetch,
                     .cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))});
  return measured;
}

void print_row(int workers, const Measured& measured) {
  const auto batches = static_cast<double>(std::max<std::int64_t>(1, measured.times.batches));
  std::cout << fmt::format(
      "{:>7}  {:>12.0f}  {:>8.1f}  {:>12.1f}  {:>10.1f}  {:>10.1f}  {:>5.1f} %\n", workers,
      static_cast<double>(measured.times.samples) / measured.seconds,
      static_cast<double>(measured.times.bytes) / measured.seconds / 1e6,
      measured.seconds * 1e6 / batches, microseconds(measured.times.wait) / batches,
      microseconds(measured.times.read) / batches, 100 * measured.times.wait_fraction());
}

// The conclusion from the table: the best number of workers, and the shortest step without waiting.
std::string verdict(const BenchOptions& options,
                    const std::vector<std::pair<int, Measured>>& rows) {
  const auto cost = [](const auto& row) {
    return row.second.seconds * 1e6 /
           static_cast<double>(std::max<std::int64_t>(1, row.second.times.batches));
  };
  const auto& best = *std::ranges::min_element(rows, {}, cost);
  if (options.step.count() > 0) {
    return best.second.advice ? *best.second.advice
                              : fmt::format("workers = {} keeps up with a step of {} ms.",
                                            best.first, options.step.count());
  }
  std::string text;
  const std::pair<int, Measured>* ahead = nullptr;  // the best that reads ahead
  for (const auto& row : rows) {
    if (row.first == 0) {
      text += fmt::format("Without workers (0), loading adds {:.1f} us to every step. ", cost(row));
    } else if (ahead == nullptr || cost(row) < cost(*ahead)) {
      ahead = &row;
    }
  }
  if (ahead != nullptr) {
    text += fmt::format("With workers = {}, a step of {:.1f} us or more does not wait for data. ",
                        ahead->first, cost(*ahead));
  }
  return text + "Give the time of your step with --step.";
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
  const auto options = read_options(arguments);
  if (options.help) {
    std::cout << kHelp;
    return 0;
  }
  OpenOptions open{.windows = {.window = options.window}};
  if (options.normalize) open.normalization = Normalization{};
  const auto data = open_dataset(options.files, open);
  std::cout << fmt::format("{}: {} samples ({}), {} bytes each, batches of {}\n", data->name(),
                           data->size(), describe(data->layout()), data->layout().sample_bytes(),
                           options.batch);
  const auto parts = measure_parts(*data, options);
  std::cout << fmt::format(
      "a batch on one thread: {:.1f} us to choose its samples, {:.1f} us to read them\n"
      "workers     samples/s      MB/s  us per batch     wait us    read us    wait\n",
      parts.sample, parts.read);
  std::vector<std::pair<int, Measured>> rows;
  for (const int workers : options.workers) {
    rows.emplace_back(workers, measure(*data, options, workers));
    print_row(workers, rows.back().second);
  }
  std::cout << verdict(options, rows) << '\n';
  return 0;
}

}  // namespace lockstep::cli
