// For tests. A second, minimal transport: frames over Unix sockets between every two ranks. It
// proves that group.h depends on nothing that only shared memory has. Every rank sends its whole
// input to every other rank; speed does not matter.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/test_plain_wire_internal.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {

class PlainControlPlane final : public ControlPlane {
 public:
  PlainControlPlane(std::shared_ptr<PlainWire> wire, std::unique_ptr<Peers> processes)
      : ControlPlane(/*polls=*/true), wire_(std::move(wire)), processes_(std::move(processes)) {}

  const Counters& counters() const noexcept override { return wire_->counters; }
  CallRecord& own_record(std::uint64_t) noexcept override { return own_record_; }
  void enter(std::uint64_t number, std::uint64_t signature) noexcept override {
    wire_->send_to_all({.kind = Kind::entered, .a = number, .b = signature},
                       std::as_bytes(std::span(&own_record_, 1)));
  }
  void complete(std::uint64_t number) noexcept override {
    wire_->send_to_all({.kind = Kind::completed, .a = number});
  }
  void set_standing(Standing standing) noexcept override {
    wire_->send_to_all({.kind = Kind::standing, .a = static_cast<std::uint64_t>(standing)});
  }
  void fail(const Cause& cause) noexcept override {
    wire_->send_to_all({.kind = Kind::failed, .a = static_cast<std::uint64_t>(cause.culprit)},
                       std::as_bytes(std::span(cause.text)));
  }
  std::optional<int> find_other_signature(std::uint64_t number,
                                          std::uint64_t signature) const override {
    for (int rank = 0; rank < wire_->size(); ++rank) {
      if (wire_->of(rank).signatures[number % kMaxCallsInFlight] != signature ||
          standing(rank) == Standing::failed) {
        return rank;
      }
    }
    return std::nullopt;
  }
  const CallRecord& record(int rank, std::uint64_t number) const override {
    return wire_->of(rank).records[number % kMaxCallsInFlight];
  }
  Standing standing(int rank) const noexcept override { return wire_->of(rank).standing; }
  Cause cause(int rank) const override {
    const std::lock_guard lock(wire_->mutex);
    return wire_->of(rank).cause;
  }
  bool is_gone(int rank) const override {
    // A process may continue without the connection, if it failed to create the group.
    const bool is_thread = processes_->process(rank) == ::getpid();
    return wire_->of(rank).closed && standing(rank) != Standing::left &&
           (is_thread || processes_->dead(rank));
  }
  std::string describe(int rank) const override { return processes_->describe(rank); }
  bool shares_cores() const override { return true; }
  void sleep(const Awaited& awaited, int rank, Deadline until) override {
    for (poll(); awaited.lags(rank) && !wire_->of(rank).closed && !until.expired(); poll()) {
      wire_->wait_readable(std::chrono::milliseconds(1));
    }
  }
  void set_waits_in(std::uint64_t number) noexcept override {
    if (std::exchange(waits_in_, number) != number) {
      wire_->send_to_all({.kind = Kind::waits, .a = number});
    }
  }
  std::uint64_t waits_in(int rank) const noexcept override { return wire_->of(rank).waits_in; }

 private:
  void receive_pending() override { wire_->poll(); }

  using Kind = PlainFrame::Kind;
  std::shared_ptr<PlainWire> wire_;
  std::unique_ptr<Peers> processes_;
  std::uint64_t waits_in_ = 0;
  CallRecord own_record_;
};

class PlainMemory final : public RegisteredMemory {
 public:
  explicit PlainMemory(std::size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const noexcept override { return bytes_; }

 private:
  mutable PlainBytes bytes_;
};

class PlainDataPlane final : public DataPlane {
 public:
  explicit PlainDataPlane(const std::shared_ptr<PlainWire>& wire)
      : DataPlane(nullptr, wire->failures), wire_(wire) {}

  std::string kind() const override { return "plain"; }
  std::string settings() const override { return "plain"; }
  std::optional<std::string> refusal_of(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? std::nullopt : std::optional<std::string>("CPU only");
  }
  void tune(Group& /*group*/) override {}
  std::shared_ptr<CallOperation> prepare(const Call& call, std::uint64_t /*number*/) override {
    auto operation = std::make_shared<CallOperation>();
    operation->call = call;
    return operation;
  }
  Recipe begin(CallOperation& operation, bool /*same_memory*/) override { return move(operation); }
  void look_ahead(CallOperation& /*oldest*/) noexcept override {}
  void retire(CallOperation& /*operation*/, bool /*is_last*/) noexcept override {}
  std::shared_ptr<MessageOperation> send(const Message& message,
                                         std::span<const std::byte> bytes) override {
    auto operation = std::make_shared<MessageOperation>();
    operation->message = message;
    operation->sends = true;
    operation->recipe = deliver(message, bytes, sent_++);
    return operation;
  }
  std::shared_ptr<MessageOperation> receive(const Message& message,
                                            std::span<std::byte> bytes) override {
    auto& turns = turns_[{message.peer, message.tag}];
    if (!turns) turns = std::make_shared<Turns>();
    auto operation = std::make_shared<MessageOperation>();
    operation->message = message;
    operation->recipe = collect(message, bytes, turns->begun++, turns);
    return operation;
  }
  std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes, const Device& /*device*/,
                                             Deadline /*deadline*/,
                                             const Watch& /*watch*/) override {
    return std::make_shared<PlainMemory>(bytes);
  }
  void give_up() noexcept override {}
  void cut_off() override {}

 private:
  using Kind = PlainFrame::Kind;
  struct Turns {
    std::uint64_t begun = 0;
    PlainWire::Word matched = 0;
  };

  [[nodiscard]] Awaited reaches(const PlainWire::Word& word, std::uint64_t target, int peer) const {
    return {.counters = &wire_->counters, .word = &word, .target = target, .peer = peer};
  }

  Recipe move(CallOperation& operation) {
    const auto& call = operation.call;
    for (int to = 0; to < wire_->size(); ++to) {
      wire_->send(to, {.kind = Kind::data, .a = operation.number}, call.input);
    }
    wire_->send_to_all({.kind = Kind::phases, .a = ++phases_});
    co_await Awaited{.counters = &wire_->counters, .condition = {Condition::Of::phases, phases_}};
    std::vector<PlainBytes> inputs;
    for (int from = 0; from < wire_->size(); ++from) {
      const std::lock_guard lock(wire_->mutex);
      inputs.push_back(std::move(wire_->of(from).data[operation.number]));
      wire_->of(from).data.erase(operation.number);
    }
    if (!call.output.empty()) combine(operation, inputs);
    for (int to = 0; to < wire_->size(); ++to) {
      if (!wire_->of(to).closed) co_await reaches(wire_->of(to).flushed, wire_->of(to).queued, to);
    }
  }

  void combine(const CallOperation& operation, const std::vector<PlainBytes>& inputs) const {
    const auto& call = operation.call;
    const auto piece = static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
    const bool cut = call.kind == Collective::reduce_scatter || call.kind == Collective::scatter ||
                     call.kind == Collective::all_to_all;
    if (has_owners(call.kind)) return combine_by_owners(operation, inputs);
    const auto offset = cut ? static_cast<std::size_t>(wire_->rank) * piece : 0;
    if (reduces(call.kind)) {
      std::vector<const std::byte*> sources;
      for (const auto& input : inputs) sources.push_back(input.data() + offset);
      auto* const output = call.output.data();
      return reduce({call.dtype, call.op, operation.weight}, operation.tree(), sources,
                    std::span(&output, 1), static_cast<std::size_t>(call.count));
    }
    const bool rooted = call.kind == Collective::broadcast || call.kind == Collective::scatter;
    for (int from = 0; from < wire_->size(); ++from) {
      if (piece == 0 || (rooted && from != call.root)) continue;
      const auto to = rooted ? 0 : static_cast<std::size_t>(from) * piece;
      std::memcpy(call.output.data() + to, inputs[static_cast<std::size_t>(from)].data() + offset,
                  piece);
    }
  }

  void combine_by_owners(const CallOperation& operation,
                         const std::vector<PlainBytes>& inputs) const {
    const auto& call = operation.call;
    const auto width = bytes_of(call.dtype);
    for (int owner = 0; owner < wire_->size(); ++owner) {
      for (const auto& range : call.owners->of(owner)) {
        const auto begin = static_cast<std::size_t>(range.begin) * width;
        const auto count = static_cast<std::size_t>(range.count);
        auto* const output = call.output.data() + begin;
        const auto& owned = inputs[static_cast<std::size_t>(owner)];
        if (!reduces(call.kind)) std::memcpy(output, owned.data() + begin, count * width);
        if (!reduces(call.kind) || owner != wire_->rank) continue;
        std::vector<const std::byte*> sources;
        for (const auto& input : inputs) sources.push_back(input.data() + begin);
        reduce({call.dtype, call.op, operation.weight}, operation.tree(), sources,
               std::span(&output, 1), count);
      }
    }
  }

  Recipe deliver(Message message, std::span<const std::byte> bytes, std::uint64_t number) {
    auto& peer = wire_->of(message.peer);
    wire_->send(message.peer, {.kind = Kind::message, .a = number, .message = message}, bytes);
    while (true) {
      const auto arrivals = peer.arrivals.load();
      {
        const std::lock_guard lock(wire_->mutex);
        if (const auto found = peer.answers.find(number); found != peer.answers.end()) {
          if (found->second) co_return;
          throw PeerError(message.peer,
                          "the receiver expects a different message than " + in_words(message));
        }
      }
      co_await reaches(peer.arrivals, arrivals + 1, message.peer);
    }
  }

  Recipe collect(Message message, std::span<std::byte> bytes, std::uint64_t number,
                 std::shared_ptr<Turns> turns) {
    auto& peer = wire_->of(message.peer);
    co_await reaches(turns->matched, number, message.peer);
    PlainWire::ArrivedMessage arrived;
    for (bool found = false; !found;) {
      const auto arrivals = peer.arrivals.load();
      {
        const std::lock_guard lock(wire_->mutex);
        auto& queue = peer.messages[message.tag];
        found = !queue.empty();
        if (found) arrived = std::move(queue.front());
        if (found) queue.pop_front();
      }
      if (!found) co_await reaches(peer.arrivals, arrivals + 1, message.peer);
    }
    const auto& sent = arrived.frame.message;
    const bool fits = sent.count == message.count && sent.dtype == message.dtype;
    wire_->send(message.peer, {.kind = Kind::answer, .a = arrived.frame.a, .b = fits ? 1U : 0U});
    if (!fits) {
      throw PeerError(message.peer, "it sent " + in_words(sent) + ", but this rank receives " +
                                        in_words(message));
    }
    ++turns->matched;
    if (!bytes.empty()) std::memcpy(bytes.data(), arrived.bytes.data(), bytes.size());
  }

  static std::string in_words(const Message& message) {
    return std::to_string(message.count) + " × " + std::string(to_string(message.dtype)) +
           " with tag " + std::to_string(message.tag);
  }

  std::shared_ptr<PlainWire> wire_;
  std::uint64_t phases_ = 0;
  std::uint64_t sent_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<Turns>> turns_;
};

// Every rank listens, connects to the lower ranks, and accepts the higher ranks.
inline Planes connect_by_plain_sockets(const Membership& membership, AddressExchange& addresses,
                                       Deadline deadline, const Watch& watch) {
  struct Hello {
    int rank = 0;
    ProcessIdentity process = ProcessIdentity::of(::getpid());
  };
  const auto address_of = [](const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: no file
    return std::pair(address,
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
  };
  static std::atomic<int> count = 0;
  const auto own = "lockstep-plain-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto [bound, bound_length] = address_of(own);
  if (::bind(listener.number(), reinterpret_cast<const sockaddr*>(&bound), bound_length) != 0 ||
      ::listen(listener.number(), membership.size()) != 0) {
    throw SystemError("cannot listen at " + own, errno);
  }
  addresses.exchange(own);
  auto wire = std::make_shared<PlainWire>(membership.rank, membership.size());
  std::vector<ProcessIdentity> processes(membership.global_ranks.size(), Hello{}.process);
  const auto greet = [&](FileDescriptor socket, int expected) {
    Hello hello{membership.rank};
    if (::send(socket.number(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
        ::recv(socket.number(), &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) {
      throw SystemError("a rank left while the group was created", ECONNRESET);
    }
    if (expected >= 0) hello.rank = expected;
    processes[static_cast<std::size_t>(hello.rank)] = hello.process;
    wire->of(hello.rank).socket = std::move(socket);
  };
  for (int below = 0; below < membership.rank; ++below) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto [address, length] = address_of(addresses.of(below));
    if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      throw SystemError("cannot reach rank " + std::to_string(below), errno);
    }
    greet(std::move(socket), below);
  }
  for (int above = membership.rank + 1; above < membership.size();) {
    pollfd watched{listener.number(), POLLIN, 0};
    if (::poll(&watched, 1, 50) > 0) {
      greet(FileDescriptor(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC)), -1);
      ++above;
    } else if (deadline.expired()) {
      throw SystemError("a rank has not connected", ETIMEDOUT);
    } else {
      watch();
    }
  }
  auto peers = std::make_unique<Peers>(processes, membership.registry->watches());
  return {std::make_unique<PlainControlPlane>(wire, std::move(peers)),
          std::make_unique<PlainDataPlane>(wire)};
}

}  // namespace lockstep
