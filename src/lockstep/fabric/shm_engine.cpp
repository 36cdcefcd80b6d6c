#include "lockstep/fabric/shm_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/shm_engine_internal.h"

namespace lockstep {
namespace {

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_SET(0, &cores);
  return cores;
}

void expect_length(const Message& message, std::size_t bytes) {
  if (message.count >= 0 &&
      static_cast<std::size_t>(message.count) * bytes_of(message.dtype) == bytes) {
    return;
  }
  throw UsageError(fmt::format("a message of {} × {} cannot lie in a span of {} bytes",
                               message.count, to_string(message.dtype), bytes));
}

}  // namespace

ShmEngine::ShmEngine(Membership membership, std::unique_ptr<SegmentExchange> exchange,
                     const EngineOptions& options)
    : membership_(std::move(membership)),
      options_(options),
      log_({.rank = membership_.global_ranks[static_cast<std::size_t>(membership_.rank)]}),
      exchange_(std::move(exchange)),
      memory_(exchange_->make(GroupMemory::bytes_for(size()), Deadline::after(options.timeout), {}),
              membership_.rank, size()),
      peers_(exchange_->processes(), membership_.progress->watches()),
      tree_(TreePlan::over_ranks(size())),
      mail_states_(static_cast<std::size_t>(size())) {
  if (rank() == 0) {
    auto bytes = options.one_shot_bytes ? options.one_shot_bytes
                                        : membership_.progress->switch_point(size());
    if (size() == 1 && !bytes) bytes = kMaxInlineBytes;
    if (bytes) memory_.set_one_shot_bytes(std::min(*bytes, kMaxInlineBytes));
  }
  memory_.lines().set_cores(own_cores());
  memory_.lines().stand(Standing::present);
  membership_.progress->add(*this);
  try {
    // Ranks that were given another limit would look for each other's inputs at other places.
    const auto name = fmt::format("group made, inline_bytes {}", options.inline_bytes);
    wait(*start({.kind = Collective::barrier, .name = name}, nullptr), std::nullopt);
  } catch (...) {
    membership_.progress->remove(*this);
    throw;
  }
  one_shot_bytes_ = memory_.one_shot_bytes();
  oversubscribed_ = memory_.lines().count_cores() < size();
}

ShmEngine::~ShmEngine() {
  membership_.progress->remove(*this);
  membership_.progress->count_pending(-static_cast<int>(queue_.size() + mails_.size()));
  if (failure_) return;
  memory_.lines().stand(Standing::left);
  // Others may still write to the memory of a call that this rank leaves in the middle.
  if (!queue_.empty() && exchange_->mapped_apart()) {
    try {
      memory_.make_private();
    } catch (const Error& error) {
      log_.warning(
          fmt::format("group {} was left in the middle of {}, and its memory may still "
                      "change: {}",
                      options_.name, call_in_words(rank(), calls_), error.what()));
    }
  }
}

int ShmEngine::global_rank(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw UsageError(fmt::format("there is no rank {} in a group of {}", rank, size()));
  }
  return membership_.global_ranks[static_cast<std::size_t>(rank)];
}

std::shared_ptr<Operation> ShmEngine::start(const Call& call, std::shared_ptr<const void> keep) {
  expect_valid(call, rank(), size());
  const Lock lock(mutex_);
  return start_call(call, std::move(keep));
}

std::shared_ptr<Operation> ShmEngine::send(const Message& message, std::span<const std::byte> bytes,
                                           std::shared_ptr<const void> keep) {
  (void)global_rank(message.peer);
  expect_length(message, bytes.size());
  const Lock lock(mutex_);
  auto& state = mail_states_[static_cast<std::size_t>(message.peer)];
  return start_mail({.message = message,
                     .sends = true,
                     .outgoing = bytes,
                     .number = state.sent++,
                     .memory = &memory_,
                     .state = &state},
                    std::move(keep));
}

std::shared_ptr<Operation> ShmEngine::receive(const Message& message, std::span<std::byte> bytes,
                                              std::shared_ptr<const void> keep) {
  (void)global_rank(message.peer);
  expect_length(message, bytes.size());
  const Lock lock(mutex_);
  auto& state = mail_states_[static_cast<std::size_t>(message.peer)];
  auto& turns = state.turns[message.tag];
  if (!turns) turns = std::make_shared<MailState::Turns>();
  return start_mail({.message = message,
                     .incoming = bytes,
                     .number = turns->begun++,
                     .memory = &memory_,
                     .state = &state,
                     .turns = turns},
                    std::move(keep));
}

void ShmEngine::advance() {
  const Lock lock(mutex_);
  expect_usable();
  advance_all();
}

bool ShmEngine::done(Operation& operation) {
  auto& own = static_cast<ShmOperation&>(operation);
  const Lock lock(mutex_);
  if (own.done) return true;
  expect_usable();
  advance_all();
  if (own.done) return true;
  // A loop around done() must hear of a lost rank too, but not ask the kernel each time.
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  const auto now = std::chrono::steady_clock::now();
  if (now - last_look_ > kBetweenLooks) {
    last_look_ = now;
    if (const auto cause = find_failure(blocker_of(own))) fail(*cause);
    membership_.progress->advance_others(*this);
  }
  return false;
}

void ShmEngine::wait(Operation& operation, std::optional<Deadline> deadline) {
  const Lock lock(mutex_);
  wait_for(static_cast<ShmOperation&>(operation), deadline);
}

std::shared_ptr<LibraryMemory> ShmEngine::allocate(std::size_t bytes) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // of all ranks: what can be mapped
  if (bytes > kMostBytes / static_cast<std::size_t>(size())) {
    throw UsageError(fmt::format("{} bytes for each of {} ranks are more than a process can map",
                                 bytes, size()));
  }
  const std::lock_guard one_at_a_time(allocating_);
  const Lock lock(mutex_);
  const Call call{.kind = Collective::allocate, .count = static_cast<std::int64_t>(bytes)};
  wait_for(*start_call(call, nullptr), std::nullopt);
  memory_.sweep();
  // Nobody has entered the call after this one who does not have the memory.
  const Awaited next{.lines = &memory_.lines(), .condition = {Condition::Of::entered, calls_ + 1}};
  const Watch watch = [&] {
    if (const auto cause = find_failure(next)) fail(*cause);
  };
  std::shared_ptr<SharedMemory> memory;
  try {
    memory = exchange_->make(Allocation::memory_bytes(bytes, size()),
                             Deadline::after(options_.timeout), watch);
  } catch (const PeerError&) {
    throw;
  } catch (const Error& error) {
    const auto* system = dynamic_cast<const SystemError*>(&error);
    const int number = system != nullptr ? system->error_number() : 0;
    if (number == EPIPE || number == ECONNRESET) look_again(watch);
    fail({0, fmt::format("{} could not hand out the memory of {} of group {}: {}", rank_in_words(0),
                         call_in_words(rank(), calls_), options_.name, error.what())});
  }
  auto allocation = memory_.add(std::move(memory), bytes);
  // Touched by the rank that will use it, so that it lies near that rank's core.
  std::memset(allocation->bytes().data(), 0, bytes);
  wait_for(*start_call({.kind = Collective::barrier, .name = "allocated"}, nullptr), std::nullopt);
  return allocation;
}

void ShmEngine::expect_usable() const {
  if (!failure_) return;
  throw PeerError(global_rank(failure_->culprit),
                  fmt::format("group {} is of no more use: {}. Make a new group to go on",
                              options_.name, failure_->text));
}

void ShmEngine::fail(const Cause& cause) {
  failure_ = cause;
  memory_.end_moving();
  memory_.lines().fail(cause);
  memory_.give_up();
  membership_.progress->count_pending(-static_cast<int>(queue_.size() + mails_.size()));
  queue_.clear();
  mails_.clear();
  write_flight_record(cause.text);
  if (exchange_->mapped_apart()) cut_off();
  throw PeerError(global_rank(cause.culprit), cause.text);
}

void ShmEngine::cut_off() {
  // A rank that moves data is done with its piece within milliseconds, unless it was stopped in the
  // middle. Then it may wake up at any time: what it can write to must not be ours any more.
  constexpr std::chrono::milliseconds kOnePiece{200};
  const auto limit = Deadline::after(kOnePiece);
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    while (memory_.state(other).moving.load(std::memory_order_seq_cst) != 0 &&
           !peers_.dead(other)) {
      if (limit.expired()) return memory_.make_private();
      ::sched_yield();
    }
  }
}

void ShmEngine::write_flight_record(const std::string& cause) const noexcept {
  if (!membership_.run_dir) return;
  const auto own = global_rank(rank());
  auto group = options_.name;
  std::replace(group.begin(), group.end(), '/', '-');
  const auto path = fmt::format("{}/flight-{}-rank{}.json", *membership_.run_dir, group, own);
  try {
    const auto text = record_.to_json(own, options_.name, cause);
    const auto file = FileDescriptor::open(path, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.number(), std::as_bytes(std::span(text)), path);
  } catch (const std::exception& error) {
    log_.warning(fmt::format("no flight record: {}", error.what()));  // the cause matters more
  }
}

}  // namespace lockstep
