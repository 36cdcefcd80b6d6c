#include "lockstep/fabric/shm_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
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

// Who closes its connections because it ends counts as gone only a moment later.
void look_again(const Watch& watch) {
  const auto limit = Deadline::after(std::chrono::milliseconds(500));
  while (!limit.expired()) {
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::shared_ptr<ShmEngine> open_engine(Membership membership,
                                       std::unique_ptr<SegmentExchange> exchange,
                                       const EngineOptions& options) {
  const auto progress = membership.progress;
  auto engine = std::make_shared<ShmEngine>(std::move(membership), std::move(exchange), options);
  if (!engine->one_shot_bytes()) {
    const auto bytes = measure_switch_point(*engine);
    engine->set_one_shot_bytes(bytes);
    progress->set_switch_point(engine->size(), bytes);
  }
  return engine;
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
      peers_(exchange_->processes()),
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
    wait(*start({.kind = Collective::barrier, .name = "group made"}, nullptr), std::nullopt);
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
  return start_mail({.message = message,
                     .incoming = bytes,
                     .number = state.turns[message.tag].begun++,
                     .memory = &memory_,
                     .state = &state},
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

std::shared_ptr<Engine> ShmEngine::split(int color, int key) {
  struct Wish {
    int color = 0;
    int key = 0;
    char door[64] = {};  // where this rank's followers would come to
  };
  Wish own{color, key};
  // Who leads is known only when all have said their wish, so everybody opens a door.
  std::optional<SocketExchange::Door> door;
  if (size() > 1) {
    door = SocketExchange::open();
    LOCKSTEP_ASSERT(door->name.size() < sizeof(own.door), "the name of a door is short");
    std::copy(door->name.begin(), door->name.end(), own.door);
  }
  std::vector<Wish> wishes(static_cast<std::size_t>(size()));
  int number = 0;
  std::uint64_t call_number = 0;
  {
    const Lock lock(mutex_);
    number = splits_++;
    wait_for(*start_call({.kind = Collective::split,
                          .count = sizeof(Wish),
                          .input = std::as_bytes(std::span(&own, 1)),
                          .output = std::as_writable_bytes(std::span(wishes))},
                         nullptr),
             std::nullopt);
    call_number = calls_;
  }
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (wishes[static_cast<std::size_t>(other)].color == color) members.push_back(other);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });

  Membership membership = membership_;
  membership.global_ranks.clear();
  for (const int member : members) membership.global_ranks.push_back(global_rank(member));
  membership.rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  auto options = options_;
  options.name = fmt::format("{}/{}.{}", options_.name, number, color);
  const auto deadline = Deadline::after(options_.timeout);
  const auto num_members = static_cast<int>(members.size());
  const Watch watch = [&] {
    for (const int member : members) {
      if (member == rank() || !peers_.dead(member)) continue;
      throw PeerError(global_rank(member),
                      fmt::format("rank {} (pid {}) is gone, and others are in call {} {}, which "
                                  "makes group {}",
                                  global_rank(member), peers_.process(member), call_number,
                                  to_string(Collective::split), options.name));
    }
  };
  try {
    std::unique_ptr<SegmentExchange> exchange;
    if (num_members == 1) {
      exchange = SocketExchange::alone();
    } else if (membership.rank == 0) {
      exchange =
          SocketExchange::lead(std::move(*door), *membership_.secret, num_members, deadline, watch);
    } else {
      const auto& leader = wishes[static_cast<std::size_t>(members.front())];
      exchange = SocketExchange::follow(leader.door, *membership_.secret, membership.rank, deadline,
                                        watch);
    }
    return open_engine(std::move(membership), std::move(exchange), options);
  } catch (const SystemError&) {
    look_again(watch);
    throw;
  }
}

void ShmEngine::try_advance() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock || failure_) return;
  try {
    advance_all();
  } catch (const Error&) {
    // Kept as the group's failure: whoever uses that group next hears of it.
  }
}

std::uint64_t ShmEngine::number_of_next_call() {
  Wait wait;
  while (true) {
    const auto number = calls_ + 1;  // anew each time: threads take turns
    if (number <= kMaxCallsInFlight) return number;
    // This call's slot was that call's.
    const Awaited room{.lines = &memory_.lines(),
                       .condition = {Condition::Of::completed, number - kMaxCallsInFlight}};
    if (!room.lagging()) return number;
    advance_all();
    const auto lagging = room.lagging();
    if (!lagging) return number;
    // This rank itself is held up by what its oldest call awaits of another.
    const auto awaited = *lagging == rank() ? blocker_of(*queue_.front()) : room;
    if (const auto other = awaited.lagging()) wait_a_little(awaited, *other, wait);
  }
}

std::shared_ptr<ShmOperation> ShmEngine::start_call(const Call& call,
                                                    std::shared_ptr<const void> keep) {
  expect_usable();
  auto operation = std::make_shared<ShmOperation>();
  operation->keep = std::move(keep);
  const auto number = number_of_next_call();
  auto& own = operation->call;
  own.call = call;
  own.descriptor = descriptor_of(call);
  own.call.name = {};
  own.number = number;
  own.memory = &memory_;
  own.steps = &steps_;
  own.rounds = &rounds_;
  own.rank_tree = &tree_;
  const auto largest_input = std::max(input_bytes(call, call.root, size()), call.input.size());
  own.is_inline = largest_input <= std::min(options_.inline_bytes, kMaxInlineBytes);
  const auto input = memory_.locate(call.input);
  // What can be joined where it lies soon costs less than a copy.
  if (joins_all(call.kind) && input.allocation >= 0 && largest_input > kMaxLibraryInlineBytes) {
    own.is_inline = false;
  }
  if (own.is_inline && !call.input.empty()) {
    std::memcpy(memory_.inline_slot(rank(), number), call.input.data(), call.input.size());
  }
  CallSlot slot{.number = number,
                .descriptor = own.descriptor,
                .riders = call.riders.value_or(Riders{}),
                .leaves = call.leaves.value_or(LeafInterval{})};
  if (!own.is_inline) {
    slot.input = input;
    slot.output = memory_.locate(call.output);
  }
  calls_ = number;
  record_.enter(number, own.descriptor);
  own.mark = mark_of(own.descriptor, number, slot.input, slot.output);
  memory_.lines().enter(slot, own.mark);
  queue_.push_back(operation);
  membership_.progress->count_pending(1);
  advance_all();
  return operation;
}

std::shared_ptr<ShmOperation> ShmEngine::start_mail(ShmMail mail,
                                                    std::shared_ptr<const void> keep) {
  expect_usable();
  auto operation = std::make_shared<ShmOperation>();
  operation->keep = std::move(keep);
  operation->mail = mail;
  operation->is_call = false;
  operation->begun = true;
  operation->steps = mail.sends ? send_recipe(operation->mail) : receive_recipe(operation->mail);
  mails_.push_back(operation);
  membership_.progress->count_pending(1);
  advance_all();
  return operation;
}

void ShmEngine::advance_all() {
  try {
    bool may_begin = true;
    for (auto& operation : queue_) {
      if (operation->done) continue;
      if (!operation->begun) {
        if (!may_begin || entered(*operation).lagging()) break;
        begin(*operation);
      }
      if (operation->done) continue;
      operation->steps.advance();
      operation->done = operation->steps.done();
      may_begin = operation->done || operation->steps.awaited().last;
    }
    while (!queue_.empty() && queue_.front()->done) {
      const auto number = queue_.front()->call.number;
      memory_.lines().complete(number);
      record_.complete(number);
      queue_.front()->keep.reset();
      queue_.pop_front();
      membership_.progress->count_pending(-1);
    }
    for (auto mail = mails_.begin(); mail != mails_.end();) {
      (*mail)->steps.advance();
      if (!(*mail)->steps.done()) {
        ++mail;
        continue;
      }
      (*mail)->done = true;
      (*mail)->keep.reset();
      mail = mails_.erase(mail);
      membership_.progress->count_pending(-1);
    }
  } catch (const PeerError& error) {
    if (failure_) throw;
    fail({error.rank(), fmt::format("{}: {}", rank_in_words(error.rank()), error.what())});
  } catch (const UsageError& error) {
    fail({rank(), error.what()});
  }
}

void ShmEngine::begin(ShmOperation& operation) {
  auto& call = operation.call;
  operation.begun = true;
  const bool symmetric = expect_equal_calls(operation);
  const auto& lines = memory_.lines();
  if (call.call.riders) {
    const auto& first = lines.slot(0, call.number).riders;
    for (int rank = 0; rank < size(); ++rank) {
      operation.joined.join(lines.slot(rank, call.number).riders, first);
    }
  }
  if (call.call.leaves) {
    std::vector<LeafInterval> leaves;
    for (int rank = 0; rank < size(); ++rank)
      leaves.push_back(lines.slot(rank, call.number).leaves);
    call.own_tree = TreePlan::over(leaves);
  }
  for (int rank = 0; rank < size() && !symmetric; ++rank) {
    // One rank's input lies in library memory alone: then all go through the staging areas.
    if (lines.slot(rank, call.number).input.allocation >= 0) call.is_inline = false;
  }
  if (call.is_inline && takes_one_shot(call.call)) {
    take_one_shot(call);
    operation.done = true;
    return;
  }
  for (int rank = 0; rank < size(); ++rank) {
    const auto& slot = lines.slot(symmetric ? this->rank() : rank, call.number);
    call.inputs.push_back(memory_.resolve(rank, slot.input));
    call.outputs.push_back(memory_.resolve(rank, slot.output));
  }
  operation.steps = recipe_for(call);
}

// Whether every rank does all of an inline call by itself, or each a part for all.
bool ShmEngine::takes_one_shot(const Call& call) const noexcept {
  return !joins_all(call.kind) || call.input.size() <= one_shot_bytes_.value_or(kMaxInlineBytes);
}

bool ShmEngine::expect_equal_calls(const ShmOperation& operation) {
  const auto& lines = memory_.lines();
  const auto number = operation.call.number;
  for (int other = 0; other < size(); ++other) {
    // The call's own mark: the line holds that of a later call when this rank has begun more.
    if (lines.mark(other, number) == operation.call.mark) continue;
    // Who has completed this call has not given it up, whatever came later.
    if (lines.lags(other, {Condition::Of::completed, number})) {
      if (const auto cause = reported_failure()) fail(*cause);
    }
    // Equal calls on memory at different places have different marks too: the slots decide. All
    // ranks look at the same slots, so all of them give the same report.
    const auto& first = lines.slot(0, number).descriptor;
    for (int rank = 1; rank < size(); ++rank) {
      if (lines.slot(rank, number).descriptor == first) continue;
      fail({rank, fmt::format("the ranks of group {} make different calls: rank {} is in {}, rank "
                              "{} in {}; every rank must make the same calls in the same order",
                              options_.name, global_rank(0), call_in_words(0, number),
                              global_rank(rank), call_in_words(rank, number))});
    }
    return false;
  }
  return true;
}

Awaited ShmEngine::entered(const ShmOperation& operation) const noexcept {
  return {.lines = &memory_.lines(), .condition = {Condition::Of::entered, operation.call.number}};
}

Awaited ShmEngine::blocker_of(const ShmOperation& operation) const noexcept {
  if (!operation.is_call) return operation.steps.awaited();
  // Calls finish in order: the oldest that waits holds up the rest.
  for (const auto& earlier : queue_) {
    if (earlier->done) continue;
    return earlier->begun ? earlier->steps.awaited() : entered(*earlier);
  }
  return entered(operation);
}

void ShmEngine::expect_usable() const {
  if (!failure_) return;
  throw PeerError(global_rank(failure_->culprit),
                  fmt::format("group {} is of no more use: {}. Make a new group to go on",
                              options_.name, failure_->text));
}

void ShmEngine::fail(const Cause& cause) {
  failure_ = cause;
  memory_.lines().fail(cause);
  // A rank that was stopped may wake up in the middle of writing to our memory.
  if (exchange_->mapped_apart()) memory_.make_private();
  membership_.progress->count_pending(-static_cast<int>(queue_.size() + mails_.size()));
  queue_.clear();
  mails_.clear();
  write_flight_record(cause.text);
  throw PeerError(global_rank(cause.culprit), cause.text);
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

std::shared_ptr<Engine> make_shm_engine(const World& world, const EngineOptions& options) {
  Membership membership;
  membership.rank = world.rank();
  membership.global_ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(membership.global_ranks.begin(), membership.global_ranks.end(), 0);
  membership.progress = world.shared<Progress>();
  membership.run_dir = world.run_dir();
  if (world.size() == 1) {
    return open_engine(std::move(membership), SocketExchange::alone(), options);
  }
  if (world.num_hosts() > 1) {
    std::string hosts;
    for (int host = 0; host < world.num_hosts(); ++host) {
      std::vector<Member> ranks;
      for (int rank = 0; rank < world.size(); ++rank) {
        if (world.host_of(rank) == host) ranks.push_back({MemberKind::rank, rank});
      }
      hosts += fmt::format("{}{} at {}", host > 0 ? "; " : "", to_string(ranks),
                           world.address_of(ranks.front().number));
    }
    throw UsageError(fmt::format(
        "a group of this version is of one host, but the {} ranks are on {} hosts: {}; start all "
        "ranks on one host",
        world.size(), world.num_hosts(), hosts));
  }
  membership.secret = std::make_shared<const Secret>(world.secret().copy());
  auto& store = world.store();
  const auto deadline = Deadline::after(options.timeout);
  const auto prefix = fmt::format("fabric/{}", membership.progress->next_group());
  const Member leader{MemberKind::rank, 0};
  const Watch watch = [&] {
    for (const auto& status : store.members(deadline)) {
      if (status.member.kind != MemberKind::rank || status.state == MemberState::connected)
        continue;
      throw PeerError(status.member.number,
                      fmt::format("{} is gone while group {} is made; its own output says why",
                                  to_string(status.member), options.name));
    }
  };
  try {
    std::unique_ptr<SegmentExchange> exchange;
    if (world.rank() == 0) {
      auto door = SocketExchange::open();
      store.set(prefix + "/door", door.name, deadline);
      store.barrier(prefix, all_ranks(world.size()), deadline);
      exchange =
          SocketExchange::lead(std::move(door), *membership.secret, world.size(), deadline, watch);
    } else {
      store.barrier(prefix, all_ranks(world.size()), deadline);
      const auto where = store.get_text(prefix + "/door", deadline, leader);
      exchange = SocketExchange::follow(where, *membership.secret, world.rank(), deadline, watch);
    }
    return open_engine(std::move(membership), std::move(exchange), options);
  } catch (const SystemError&) {
    look_again(watch);
    throw;
  }
}

}  // namespace lockstep
