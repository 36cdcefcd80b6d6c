// For tests. A second, minimal transport: frames over Unix sockets between every two ranks. It
// proves that group.h depends on nothing that only shared memory has. Every rank sends its whole
// input to every other rank; a thread per connection receives. Sends block: a rank that is stopped
// while its socket is full stops the others. Speed does not matter.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/net/listener.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {

struct PlainFrame {
  enum class Kind { word, record, cause, data, message, answer };
  struct Key {
    Kind kind = Kind::word;
    int tag = 0;               // of a message or its answer
    std::uint64_t number = 0;  // of the word or call; of a message among those with its tag
    auto operator<=>(const Key&) const = default;
  };
  Key key = {};
  std::uint64_t value = 0;
  Message message = {};
  std::uint64_t bytes = 0;  // length of the data that follows the frame
};

// The connections, and what this rank has received from each. Thread-safe.
class PlainWire {
 public:
  using Kind = PlainFrame::Kind;
  using Word = std::atomic<std::uint64_t>;
  // What a rank publishes besides its counters (Condition::Of), which have the numbers before.
  enum Published { kStanding = 3, kWaitsIn, kNumWords };
  // Data of a call, a message, or the answer to one: `arrived` is set last.
  struct Parcel {
    PlainFrame frame;
    std::vector<std::byte> bytes;
    Word arrived = 0;
  };
  struct Peer {
    std::array<Word, kNumWords> words{};
    std::array<CallRecord, kMaxCallsInFlight> records;
    std::array<Word, kMaxCallsInFlight> signatures{};
    Cause cause;                                // mutex
    std::map<PlainFrame::Key, Parcel> parcels;  // mutex; those that arrived or are awaited
    std::optional<Socket> socket;
    std::atomic<bool> closed = false;
    std::thread reader;
  };

  PlainWire(int own_rank, int size)
      : rank(own_rank),
        peers(static_cast<std::size_t>(size)),
        counters(reinterpret_cast<const std::byte*>(peers[0].words.data()), sizeof(Peer),
                 sizeof(Word), size) {}
  ~PlainWire() {
    for (auto& peer : peers) {
      if (peer.socket) ::shutdown(peer.socket->number(), SHUT_RDWR);
      if (peer.reader.joinable()) peer.reader.join();
    }
  }

  void connect(int other, Socket socket) {
    of(other).socket = std::move(socket);
    of(other).reader = std::thread([this, other] { receive_from(other); });
  }

  [[nodiscard]] int size() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] Peer& of(int other) { return peers[static_cast<std::size_t>(other)]; }
  // What arrives from `from` for `key`. Valid until drop().
  [[nodiscard]] Parcel& parcel(int from, const PlainFrame::Key& key) {
    const std::lock_guard lock(mutex);
    return of(from).parcels[key];
  }
  void drop(int from, const PlainFrame::Key& key) {
    const std::lock_guard lock(mutex);
    of(from).parcels.erase(key);
  }

  void send(int to, PlainFrame frame, std::span<const std::byte> bytes = {}) {
    frame.bytes = bytes.size();
    if (to == rank) return handle(rank, frame, {bytes.begin(), bytes.end()});
    const std::lock_guard lock(sending_);
    try {
      of(to).socket->send_all(std::as_bytes(std::span(&frame, 1)), kNever);
      of(to).socket->send_all(bytes, kNever);
    } catch (const SystemError&) {
      // The thread that receives detects it too.
    }
  }
  void send_to_all(const PlainFrame& frame, std::span<const std::byte> bytes = {}) {
    for (int to = 0; to < size(); ++to) send(to, frame, bytes);
  }
  template <typename Which, typename Value>
  void publish(Which which, Value value) {
    send_to_all({.key = {.number = static_cast<std::uint64_t>(which)},
                 .value = static_cast<std::uint64_t>(value)});
  }

  const int rank;
  std::atomic<std::uint64_t> failures = 0;  // published by other ranks
  std::mutex mutex;
  std::condition_variable changed;  // something has arrived
  std::vector<Peer> peers;          // by rank, this one included
  const Counters counters;

 private:
  static inline const Deadline kNever = Deadline::after(Deadline::Clock::duration::max());

  void receive_from(int other) {
    auto& peer = of(other);
    try {
      for (;;) {
        PlainFrame frame;
        peer.socket->receive_exactly(std::as_writable_bytes(std::span(&frame, 1)), kNever);
        std::vector<std::byte> bytes(frame.bytes);
        peer.socket->receive_exactly(bytes, kNever);
        handle(other, frame, std::move(bytes));
      }
    } catch (const SystemError&) {
      const std::lock_guard lock(mutex);
      peer.closed = true;
    }
    changed.notify_all();
  }

  void handle(int from, const PlainFrame& frame, std::vector<std::byte> bytes) {
    const std::lock_guard lock(mutex);
    auto& peer = of(from);
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    switch (const auto number = frame.key.number; frame.key.kind) {
      case Kind::word:
        peer.words.at(number) = frame.value;
        if (number == kStanding && frame.value == static_cast<std::uint64_t>(Standing::failed)) {
          failures += from != rank ? 1 : 0;
        }
        break;
      case Kind::record:
        std::memcpy(static_cast<void*>(&peer.records[number % kMaxCallsInFlight]), text,
                    sizeof(CallRecord));
        peer.signatures[number % kMaxCallsInFlight] = frame.value;
        break;
      case Kind::cause:
        peer.cause = {static_cast<int>(frame.value), {text, bytes.size()}};
        break;
      default:
        auto& parcel = peer.parcels[frame.key];
        parcel.frame = frame;
        parcel.bytes = std::move(bytes);
        parcel.arrived = 1;
        break;
    }
    changed.notify_all();
  }

  std::mutex sending_;
};

class PlainControlPlane final : public ControlPlane {
 public:
  PlainControlPlane(std::shared_ptr<PlainWire> wire, std::unique_ptr<Peers> processes)
      : ControlPlane(/*polls=*/false), wire_(std::move(wire)), processes_(std::move(processes)) {}

  const Counters& counters() const noexcept override { return wire_->counters; }
  CallRecord& own_record(std::uint64_t) noexcept override { return own_record_; }
  void enter(std::uint64_t number, std::uint64_t signature) noexcept override {
    wire_->send_to_all({.key = {.kind = Kind::record, .number = number}, .value = signature},
                       std::as_bytes(std::span(&own_record_, 1)));
    wire_->publish(Condition::Of::entered, number);
  }
  void complete(std::uint64_t number) noexcept override {
    wire_->publish(Condition::Of::completed, number);
  }
  void set_standing(Standing standing) noexcept override {
    wire_->publish(PlainWire::kStanding, standing);
  }
  void fail(const Cause& cause) noexcept override {
    const auto culprit = static_cast<std::uint64_t>(cause.culprit);
    wire_->send_to_all({.key = {.kind = Kind::cause}, .value = culprit},
                       std::as_bytes(std::span(cause.text)));
    set_standing(Standing::failed);
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
  Standing standing(int rank) const noexcept override {
    return static_cast<Standing>(wire_->of(rank).words[PlainWire::kStanding].load());
  }
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
    constexpr Deadline::Clock::duration kLook = std::chrono::milliseconds(10);
    std::unique_lock lock(wire_->mutex);
    wire_->changed.wait_for(lock, std::min(kLook, until.remaining()),
                            [&] { return !awaited.lags(rank) || wire_->of(rank).closed; });
  }
  void set_waits_in(std::uint64_t number) noexcept override {
    if (waits_in(wire_->rank) != number) wire_->publish(PlainWire::kWaitsIn, number);
  }
  std::uint64_t waits_in(int rank) const noexcept override {
    return wire_->of(rank).words[PlainWire::kWaitsIn];
  }

 private:
  using Kind = PlainFrame::Kind;
  std::shared_ptr<PlainWire> wire_;
  std::unique_ptr<Peers> processes_;
  CallRecord own_record_;
};

class PlainMemory final : public RegisteredMemory {
 public:
  explicit PlainMemory(std::size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const noexcept override { return bytes_; }

 private:
  mutable std::vector<std::byte> bytes_;
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
    return start(message, true, deliver(message, bytes, sent_[{message.peer, message.tag}]++));
  }
  std::shared_ptr<MessageOperation> receive(const Message& message,
                                            std::span<std::byte> bytes) override {
    return start(message, false, collect(message, bytes, received_[{message.peer, message.tag}]++));
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

  static std::shared_ptr<MessageOperation> start(const Message& message, bool sends,
                                                 Recipe recipe) {
    auto operation = std::make_shared<MessageOperation>();
    operation->message = message;
    operation->sends = sends;
    operation->recipe = std::move(recipe);
    return operation;
  }

  [[nodiscard]] Awaited arrival(const PlainWire::Parcel& parcel, int from) const {
    return {.counters = &wire_->counters, .word = &parcel.arrived, .target = 1, .peer = from};
  }

  Recipe move(CallOperation& operation) {
    const auto& call = operation.call;
    const PlainFrame::Key key{.kind = Kind::data, .number = operation.number};
    wire_->send_to_all({.key = key}, call.input);
    std::vector<const std::byte*> inputs;
    for (int from = 0; from < wire_->size(); ++from) {
      const auto& parcel = wire_->parcel(from, key);
      co_await arrival(parcel, from);
      inputs.push_back(parcel.bytes.data());
    }
    if (!call.output.empty()) combine(operation, inputs);
    for (int from = 0; from < wire_->size(); ++from) wire_->drop(from, key);
  }

  void combine(const CallOperation& operation, const std::vector<const std::byte*>& inputs) const {
    const auto& call = operation.call;
    const auto count = static_cast<std::size_t>(call.count);
    const auto width = bytes_of(call.dtype);
    // Offsets and lengths are in elements.
    const auto copy = [&](int from, std::size_t at, std::size_t to, std::size_t length) {
      const auto* const input = inputs[static_cast<std::size_t>(from)];
      if (length > 0)
        std::memcpy(call.output.data() + to * width, input + at * width, length * width);
    };
    const auto sum = [&](std::size_t at, std::size_t to, std::size_t length) {
      auto sources = inputs;
      for (auto& source : sources) source += at * width;
      auto* const output = call.output.data() + to * width;
      reduce({call.dtype, call.op, operation.weight}, operation.tree(), sources,
             std::span(&output, 1), length);
    };
    if (has_owners(call.kind)) {
      for (int owner = 0; owner < wire_->size(); ++owner) {
        for (const auto& range : call.owners->of(owner)) {
          const auto begin = static_cast<std::size_t>(range.begin);
          const auto length = static_cast<std::size_t>(range.count);
          if (!reduces(call.kind)) copy(owner, begin, begin, length);
          if (reduces(call.kind) && owner == wire_->rank) sum(begin, begin, length);
        }
      }
      return;
    }
    const bool cut = call.kind == Collective::reduce_scatter || call.kind == Collective::scatter ||
                     call.kind == Collective::all_to_all;
    const auto at = cut ? static_cast<std::size_t>(wire_->rank) * count : 0;
    if (reduces(call.kind)) return sum(at, 0, count);
    const bool rooted = call.kind == Collective::broadcast || call.kind == Collective::scatter;
    for (int from = 0; from < wire_->size(); ++from) {
      if (!rooted) copy(from, at, static_cast<std::size_t>(from) * count, count);
      if (rooted && from == call.root) copy(from, at, 0, count);
    }
  }

  Recipe deliver(Message message, std::span<const std::byte> bytes, std::uint64_t number) {
    PlainFrame::Key key{.kind = Kind::message, .tag = message.tag, .number = number};
    wire_->send(message.peer, {.key = key, .message = message}, bytes);
    key.kind = Kind::answer;
    const auto& answer = wire_->parcel(message.peer, key);
    co_await arrival(answer, message.peer);
    if (answer.frame.value == 0) {
      throw PeerError(message.peer,
                      "the receiver expects a different message than " + in_words(message));
    }
    wire_->drop(message.peer, key);
  }

  Recipe collect(Message message, std::span<std::byte> bytes, std::uint64_t number) {
    PlainFrame::Key key{.kind = Kind::message, .tag = message.tag, .number = number};
    const auto& parcel = wire_->parcel(message.peer, key);
    co_await arrival(parcel, message.peer);
    const auto& sent = parcel.frame.message;
    const bool fits = sent.count == message.count && sent.dtype == message.dtype;
    wire_->send(message.peer,
                {.key = {Kind::answer, message.tag, number}, .value = fits ? 1U : 0U});
    if (!fits) {
      throw PeerError(message.peer, "it sent " + in_words(sent) + ", but this rank receives " +
                                        in_words(message));
    }
    if (!bytes.empty()) std::memcpy(bytes.data(), parcel.bytes.data(), bytes.size());
    wire_->drop(message.peer, key);
  }

  static std::string in_words(const Message& message) {
    return std::to_string(message.count) + " × " + std::string(to_string(message.dtype)) +
           " with tag " + std::to_string(message.tag);
  }

  std::shared_ptr<PlainWire> wire_;
  // By peer and tag, the number of messages.
  std::map<std::pair<int, int>, std::uint64_t> sent_;
  std::map<std::pair<int, int>, std::uint64_t> received_;
};

// Every rank listens, connects to the lower ranks, and accepts the higher ranks.
inline Planes connect_by_plain_sockets(const Membership& membership, AddressExchange& addresses,
                                       Deadline deadline, const Watch& watch) {
  auto listener = Listener::unix_random("lockstep-plain-");
  addresses.exchange(listener.unix_name());
  auto wire = std::make_shared<PlainWire>(membership.rank, membership.size());
  std::vector<ProcessIdentity> processes(membership.global_ranks.size(),
                                         ProcessIdentity::of(::getpid()));
  const auto add = [&](int other, Socket socket) {
    processes[static_cast<std::size_t>(other)] = ProcessIdentity::of(socket.peer_process());
    wire->connect(other, std::move(socket));
  };
  for (int below = 0; below < membership.rank; ++below) {
    auto socket = Socket::connect_unix(addresses.of(below), deadline);
    socket.send_all(std::as_bytes(std::span(&membership.rank, 1)), deadline);
    add(below, std::move(socket));
  }
  for (int above = membership.rank + 1; above < membership.size();) {
    auto socket = listener.try_accept();
    if (!socket) {
      if (deadline.expired()) throw SystemError("a rank has not connected", ETIMEDOUT);
      watch();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    int other = 0;
    socket->receive_exactly(std::as_writable_bytes(std::span(&other, 1)), deadline);
    add(other, std::move(*socket));
    ++above;
  }
  auto peers = std::make_unique<Peers>(processes, membership.registry->watches());
  return {std::make_unique<PlainControlPlane>(wire, std::move(peers)),
          std::make_unique<PlainDataPlane>(wire)};
}

}  // namespace lockstep
