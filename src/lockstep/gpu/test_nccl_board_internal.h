// For tests. What the NcclDoubles of ranks that are processes share: memory that all of them map,
// in which each rank leaves the calls of its launches with their inputs.
//
// A rank has two pages, which its launches use in turns. The page of a launch is not needed any
// more when it is filled again: the rank has completed the launch between the two, for which all
// ranks have arrived, and each of them arrives only after it has read the one before.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {

/// One call of one rank.
struct NcclCall {
  enum class Kind : std::uint8_t { send, receive, all_gather, all_to_all, broadcast, all_reduce };

  Kind kind = Kind::send;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  Reduction reduction = {};

  [[nodiscard]] std::size_t input_bytes(std::size_t num_ranks) const {
    if (kind == Kind::receive) return 0;
    return kind == Kind::all_to_all ? bytes * num_ranks : bytes;
  }
  [[nodiscard]] std::size_t output_bytes(std::size_t num_ranks) const {
    if (kind == Kind::send) return 0;
    const bool is_of_all = kind == Kind::all_gather || kind == Kind::all_to_all;
    return is_of_all ? bytes * num_ranks : bytes;
  }
};

class NcclBoard {
 public:
  /// How another process finds the memory, while the one that made it lives.
  struct Address {
    pid_t process = 0;
    int descriptor = 0;
  };

  NcclBoard() : memory_(kBytes) {}
  explicit NcclBoard(const Address& address)
      : memory_(FileDescriptor::open("/proc/" + std::to_string(address.process) + "/fd/" +
                                         std::to_string(address.descriptor),
                                     O_RDWR),
                kBytes) {}

  /// For the process that made it.
  [[nodiscard]] Address address() const { return {::getpid(), memory_.descriptor()}; }

  void connect(std::size_t rank) { word(kConnected, rank).store(1); }
  [[nodiscard]] bool is_connected(std::size_t num_ranks) const {
    return all_reach(kConnected, num_ranks, 1);
  }

  /// The rank has arrived at launch `number`, which has `calls`.
  void arrive(std::size_t rank, std::uint64_t number, const std::vector<NcclCall>& calls,
              std::size_t num_ranks) {
    auto* at = page(rank, number);
    const auto* const end = at + kPageBytes;
    const auto add = [&](const void* from, std::size_t bytes) {
      LOCKSTEP_ASSERT(bytes <= static_cast<std::size_t>(end - at), "the pages are large enough");
      if (bytes > 0) std::memcpy(at, from, bytes);
      at += bytes;
    };
    const auto count = calls.size();
    add(&count, sizeof(count));
    for (const auto& call : calls) {
      add(&call, sizeof(call));
      add(call.from, call.input_bytes(num_ranks));
    }
    word(kArrived, rank).store(number + 1);
  }
  [[nodiscard]] bool all_arrived(std::uint64_t number, std::size_t num_ranks) const {
    return all_reach(kArrived, num_ranks, number + 1);
  }

  /// The calls of another rank. Their inputs are on the board; memory for their outputs, which this
  /// process does not need, is added to `unused`.
  [[nodiscard]] std::vector<NcclCall> calls(std::size_t rank, std::uint64_t number,
                                            std::size_t num_ranks,
                                            std::vector<std::unique_ptr<std::byte[]>>& unused) {
    const auto* at = page(rank, number);
    std::size_t count = 0;
    std::memcpy(&count, at, sizeof(count));
    at += sizeof(count);
    std::vector<NcclCall> calls(count);
    for (auto& call : calls) {
      std::memcpy(&call, at, sizeof(call));
      at += sizeof(call);
      call.from = at;
      at += call.input_bytes(num_ranks);
      unused.push_back(std::make_unique<std::byte[]>(call.output_bytes(num_ranks)));
      call.to = unused.back().get();
    }
    return calls;
  }

 private:
  static constexpr std::size_t kMostRanks = 8;
  static constexpr std::size_t kPageBytes = 4U << 20;  // takes memory only as far as it is filled
  static constexpr std::size_t kHeadBytes = 4096;
  static constexpr std::size_t kBytes = kHeadBytes + 2 * kMostRanks * kPageBytes;
  // Rows of words, one for each rank.
  static constexpr std::size_t kConnected = 0;
  static constexpr std::size_t kArrived = 1;

  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::size_t row, std::size_t rank) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(memory_.bytes().data());
    return std::atomic_ref(words[row * kMostRanks + rank]);
  }
  [[nodiscard]] bool all_reach(std::size_t row, std::size_t num_ranks, std::uint64_t value) const {
    LOCKSTEP_ASSERT(num_ranks <= kMostRanks, "a board has room for all ranks");
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      if (word(row, rank).load() < value) return false;
    }
    return true;
  }
  [[nodiscard]] std::byte* page(std::size_t rank, std::uint64_t number) const {
    return memory_.bytes().data() + kHeadBytes + (2 * rank + number % 2) * kPageBytes;
  }

  SharedMemory memory_;
};

}  // namespace lockstep
