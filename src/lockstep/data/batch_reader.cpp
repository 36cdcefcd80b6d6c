#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/ParallelGuard.h>
#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/batch_reader_internal.h"

namespace lockstep {
namespace {

// The current exception as a lockstep Error whose message begins with the sample's index.
std::exception_ptr name_sample(const Dataset& dataset, std::int64_t sample, std::int64_t epoch) {
  const auto where = fmt::format("sample {} of {} (epoch {})", sample, dataset.name(), epoch);
  try {
    throw;
  } catch (const SystemError& error) {
    // SystemError appends the system's message again.
    std::string_view what = error.what();
    const auto words = ": " + std::generic_category().message(error.error_number());
    if (what.ends_with(words)) what.remove_suffix(words.size());
    return std::make_exception_ptr(
        SystemError(fmt::format("{}: {}", where, what), error.error_number()));
  } catch (const c10::Error& error) {
    return std::make_exception_ptr(
        UsageError(fmt::format("{}: {}", where, error.what_without_backtrace())));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(UsageError(fmt::format("{}: {}", where, error.what())));
  } catch (...) {
    return std::make_exception_ptr(
        UsageError(fmt::format("{}: an exception that is not a std::exception was thrown", where)));
  }
}

}  // namespace

SampleLayout layout_after(const SampleLayout& layout, const std::vector<Transform>& transforms) {
  auto result = layout;
  for (const auto& transform : transforms) {
    if (transform.layout) result = *transform.layout;
  }
  return result;
}

BatchReader::BatchReader(const Dataset& dataset, const std::vector<Transform>& transforms,
                         std::uint64_t seed, const SampleLayout& batch_layout, BatchMemory& memory,
                         std::int64_t capacity)
    : dataset_(dataset),
      transforms_(transforms),
      seed_(seed),
      batch_layout_(batch_layout),
      memory_(memory) {
  auto layout = dataset.layout();
  for (const auto& transform : transforms_) {
    // Only a transform that changes the layout needs a separate input buffer.
    inputs_.push_back(transform.layout ? std::make_unique<RowsBuffer>(layout, capacity) : nullptr);
    if (transform.layout) layout = *transform.layout;
  }
}

ReadResult BatchReader::read(ReadJob job) {
  const c10::NoGradGuard no_gradients;  // grad mode is on by default in every thread
  const c10::ParallelGuard one_core(
      true);  // the other cores are used by the step and by other workers
  ReadResult result;
  result.begin = std::chrono::steady_clock::now();
  try {
    memory_.begin_write(job.buffer);
    read_into(job, result);
    memory_.end_write(job.buffer, static_cast<std::int64_t>(result.samples.size()));
  } catch (...) {
    result.failure = std::current_exception();
  }
  result.end = std::chrono::steady_clock::now();
  return result;
}

void BatchReader::read_into(ReadJob& job, ReadResult& result) {
  try {
    read_some(job.epoch, job.samples, memory_.blocks(job.buffer), 0);
    result.samples = std::move(job.samples);
  } catch (...) {
    read_one_by_one(job, result);
  }
}

void BatchReader::read_some(std::int64_t epoch, std::span<const std::int64_t> samples,
                            std::span<std::byte* const> buffer, std::int64_t first) {
  if (samples.empty()) return;
  const auto count = static_cast<std::int64_t>(samples.size());
  // Each stage writes where the next stage reads: the next transform's input, or the batch buffer.
  const auto output_of = [&](std::size_t stage) {
    for (auto ahead = stage; ahead < inputs_.size(); ++ahead) {
      if (inputs_[ahead]) return inputs_[ahead]->rows(count);
    }
    return Rows(batch_layout_, buffer, first, count);
  };
  dataset_.read(samples, output_of(0));
  for (std::size_t stage = 0; stage < transforms_.size(); ++stage) {
    const SampleStreams random(seed_, static_cast<int>(stage), epoch, samples);
    transforms_[stage].apply(output_of(stage), output_of(stage + 1), random);
  }
}

void BatchReader::read_one_by_one(const ReadJob& job, ReadResult& result) {
  for (const auto sample : job.samples) {
    try {
      read_some(job.epoch, {&sample, 1}, memory_.blocks(job.buffer),
                static_cast<std::int64_t>(result.samples.size()));
      result.samples.push_back(sample);
    } catch (...) {
      result.bad.push_back({sample, name_sample(dataset_, sample, job.epoch)});
    }
  }
}

}  // namespace lockstep
