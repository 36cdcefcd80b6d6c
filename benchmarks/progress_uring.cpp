#include "progress_uring.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr unsigned kEntries = 8;  // one request per direction is enough

std::atomic_ref<unsigned> word_at(std::byte* start, unsigned offset) {
  return std::atomic_ref<unsigned>(*reinterpret_cast<unsigned*>(start + offset));
}

}  // namespace

std::unique_ptr<UringMover> UringMover::try_make() {
  io_uring_params parameters{};
  // The work of a request is done by the thread itself, when it enters the kernel.
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  FileDescriptor ring(static_cast<int>(::syscall(__NR_io_uring_setup, kEntries, &parameters)));
  if (!ring || (parameters.features & IORING_FEAT_SINGLE_MMAP) == 0) return nullptr;
  return std::unique_ptr<UringMover>(new UringMover(std::move(ring), parameters));
}

UringMover::UringMover(FileDescriptor ring, const io_uring_params& parameters)
    : ring_(std::move(ring)), parameters_(parameters) {
  queues_.bytes = std::max(parameters_.sq_off.array + parameters_.sq_entries * sizeof(unsigned),
                           parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe));
  queues_.start = map(queues_.bytes, IORING_OFF_SQ_RING);
  entries_.bytes = parameters_.sq_entries * sizeof(io_uring_sqe);
  entries_.start = map(entries_.bytes, IORING_OFF_SQES);
}

UringMover::~UringMover() {
  for (const auto& ring : {queues_, entries_}) {
    if (ring.start != nullptr) (void)::munmap(ring.start, ring.bytes);
  }
}

std::byte* UringMover::map(std::size_t bytes, long offset) const {
  void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                             ring_.number(), offset);
  if (start == MAP_FAILED) throw SystemError("cannot map the queues of io_uring", errno);
  return static_cast<std::byte*>(start);
}

void UringMover::submit(int socket, bool sends, void* bytes, std::size_t length) {
  const auto tail = word_at(queues_.start, parameters_.sq_off.tail);
  const auto number = tail.load(std::memory_order_relaxed);
  const auto index = number & (parameters_.sq_entries - 1);
  auto& entry = reinterpret_cast<io_uring_sqe*>(entries_.start)[index];
  entry = {};
  entry.opcode = sends ? IORING_OP_SEND : IORING_OP_RECV;
  entry.fd = socket;
  entry.addr = reinterpret_cast<std::uintptr_t>(bytes);
  entry.len = static_cast<unsigned>(length);
  entry.msg_flags = MSG_WAITALL | MSG_NOSIGNAL;  // the whole length, also of a send
  entry.user_data = sends ? 1 : 0;
  reinterpret_cast<unsigned*>(queues_.start + parameters_.sq_off.array)[index] = index;
  tail.store(number + 1, std::memory_order_release);
  ++submitted_;
}

void UringMover::enter() {
  const auto entered = ::syscall(__NR_io_uring_enter, ring_.number(), submitted_, 1,
                                 IORING_ENTER_GETEVENTS, nullptr, 0);
  if (entered < 0 && errno != EINTR) throw SystemError("io_uring_enter failed", errno);
  if (entered > 0) submitted_ -= static_cast<unsigned>(entered);
}

void UringMover::move(int socket, PlainExchange& exchange, std::size_t most) {
  bool sends = false;
  bool receives = false;
  const auto head = word_at(queues_.start, parameters_.cq_off.head);
  const auto tail = word_at(queues_.start, parameters_.cq_off.tail);
  const auto* const ended =
      reinterpret_cast<const io_uring_cqe*>(queues_.start + parameters_.cq_off.cqes);
  while (!exchange.is_done()) {
    if (!exchange.out.empty() && !std::exchange(sends, true)) {
      submit(socket, true, const_cast<std::byte*>(exchange.out.data()),
             std::min(exchange.out.size(), most));
    }
    if (!exchange.in.empty() && !std::exchange(receives, true)) {
      submit(socket, false, exchange.in.data(), std::min(exchange.in.size(), most));
    }
    enter();
    auto next = head.load(std::memory_order_relaxed);
    for (; next != tail.load(std::memory_order_acquire); ++next) {
      const auto& result = ended[next & (parameters_.cq_entries - 1)];
      if (result.res <= 0) throw SystemError("a request of io_uring failed", -result.res);
      const auto moved = static_cast<std::size_t>(result.res);
      if (result.user_data == 1) {
        exchange.out = exchange.out.subspan(moved);
        sends = false;
      } else {
        exchange.in = exchange.in.subspan(moved);
        receives = false;
      }
    }
    head.store(next, std::memory_order_release);
  }
}

}  // namespace lockstep
