#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/base/crash_record_internal.h"

namespace lockstep {
namespace {

constexpr int kMostFrames = 128;

void write_bytes(int descriptor, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd room{descriptor, POLLOUT, 0};
      ::poll(&room, 1, -1);  // the handler's alarm ends the process if the pipe stays full
    } else if (errno != EINTR) {
      return;  // the reader is gone
    }
  }
}

// One line of the record. It is cut at the size of the buffer.
class Line {
 public:
  explicit Line(const char* word) { text(word); }

  Line& text(const char* words) {
    for (; *words != '\0'; ++words) put(*words);
    return *this;
  }

  Line& field(const char* words) { return text(" ").text(words); }

  Line& field(long long number) {
    text(number < 0 ? " -" : " ");
    const auto size = static_cast<unsigned long long>(number);
    return digits(number < 0 ? 0 - size : size, 10);
  }

  Line& hex(std::uintptr_t address) { return text(" 0x").digits(address, 16); }

  Line& signal(int number) {
    const char* name = ::sigabbrev_np(number);  // a table of constants in glibc: no lock, no memory
    return field(number).text(" SIG").text(name != nullptr ? name : "?");
  }

  void send(int descriptor) {
    bytes_[length_] = '\n';
    write_bytes(descriptor, {bytes_.data(), length_ + 1});
  }

 private:
  void put(char byte) {
    if (length_ + 1 < bytes_.size()) bytes_[length_++] = byte;
  }

  Line& digits(unsigned long long number, unsigned base) {
    std::array<char, 24> reversed{};
    std::size_t count = 0;
    do {
      reversed[count++] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    while (count > 0) put(reversed[--count]);
    return *this;
  }

  std::array<char, 128> bytes_{};
  std::size_t length_ = 0;
};

// Reads a word of this process's memory at an address that may be unmapped: the system call returns
// an error where a load would fault.
bool read_word(std::uintptr_t address, std::uintptr_t& word) {
  const iovec here{&word, sizeof(word)};
  const iovec there{reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr)
                    sizeof(word)};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == ssize_t{sizeof(word)};
}

// The interrupted thread's instruction address, its frame pointer, and the return address if that
// instruction is the first of a function.
struct Registers {
  std::uintptr_t instruction = 0;
  std::uintptr_t frame = 0;
  std::uintptr_t caller = 0;
};

Registers registers_of(const void* context) {
  Registers result;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  result.instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  result.frame = static_cast<std::uintptr_t>(machine.gregs[REG_RBP]);
  const auto stack = static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
  if (!read_word(stack, result.caller)) result.caller = 0;
#elif defined(__aarch64__)
  result.instruction = machine.pc;
  result.frame = machine.regs[29];
  result.caller = machine.regs[30];
#else
#error "lockstep supports the registers of x86-64 and aarch64: add those of this processor here."
#endif
  return result;
}

// For an instruction address that the unwinder does not know, as after a call through a null or
// wild function pointer: follows the chain of frame pointers, which lockstep is compiled with.
void write_frames_by_pointer(int descriptor, const Registers& registers) {
  Line("frame").hex(registers.caller).send(descriptor);
  std::uintptr_t frame = registers.frame;
  for (int count = 2; count < kMostFrames; ++count) {
    std::uintptr_t outer = 0;
    std::uintptr_t back = 0;
    if (!read_word(frame, outer) || !read_word(frame + sizeof(back), back) || back == 0) return;
    Line("frame").hex(back).send(descriptor);
    if (outer <= frame) return;  // stacks grow downwards: this is not a frame
    frame = outer;
  }
}

void write_mapping_if_executable(int descriptor, std::span<char> line) {
  const auto space = std::find(line.begin(), line.end(), ' ');
  if (line.end() - space < 5 || space[3] != 'x') return;  // " r-xp"
  line.back() = '\n';                                     // also when the line was cut
  write_bytes(descriptor, {"mapping ", 8});
  write_bytes(descriptor, line);
}

void write_mappings(int descriptor) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return Line("no-mappings").field(errno).send(descriptor);
  std::array<char, 4096> chunk{};
  std::array<char, 4096 + 128> line{};  // the longest path, and the numbers in front of it
  std::size_t length = 0;
  ssize_t count = 0;
  while ((count = ::read(maps, chunk.data(), chunk.size())) > 0 || (count < 0 && errno == EINTR)) {
    for (ssize_t i = 0; i < count; ++i) {
      const char byte = chunk[static_cast<std::size_t>(i)];
      if (length < line.size()) line[length++] = byte;
      if (byte != '\n') continue;
      write_mapping_if_executable(descriptor, {line.data(), length});
      length = 0;
    }
  }
  ::close(maps);
}

}  // namespace

void write_crash_head(int descriptor, int signal, const siginfo_t& info) {
  Line("lockstep-crash 1").send(descriptor);
  Line("signal").signal(signal).send(descriptor);
  Line("code").field(info.si_code).send(descriptor);
  if (info.si_code > 0) {
    Line("address").hex(reinterpret_cast<std::uintptr_t>(info.si_addr)).send(descriptor);
  } else {
    Line("sender").field(info.si_pid).send(descriptor);
  }
  Line("pid").field(::getpid()).send(descriptor);
  std::array<char, 17> name{};
  ::prctl(PR_GET_NAME, name.data());
  for (char& byte : name) {
    if (byte > 0 && byte < ' ') byte = '?';
  }
  Line("thread").field(::syscall(SYS_gettid)).field(name.data()).send(descriptor);
}

void write_crash_frames(int descriptor, const void* context) {
  const Registers registers = registers_of(context);
  Line("frame").hex(registers.instruction).send(descriptor);
  std::array<void*, kMostFrames> frames{};
  const int count = ::backtrace(frames.data(), kMostFrames);
  // The unwinder starts in this function; the crashed code begins at the interrupted instruction.
  const auto end = frames.begin() + count;
  const auto crashed = std::find_if(frames.begin(), end, [&](const void* frame) {
    return reinterpret_cast<std::uintptr_t>(frame) == registers.instruction;
  });
  if (crashed == end) return write_frames_by_pointer(descriptor, registers);
  for (auto frame = crashed + 1; frame < end; ++frame) {
    Line("frame").hex(reinterpret_cast<std::uintptr_t>(*frame)).send(descriptor);
  }
}

void write_crash_nested(int descriptor, int signal) {
  Line("nested").signal(signal).send(descriptor);
}

void write_crash_end(int descriptor) {
  write_mappings(descriptor);
  Line("end").send(descriptor);
}

}  // namespace lockstep
