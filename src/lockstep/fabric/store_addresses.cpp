#include "lockstep/fabric/store_addresses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// A word in the text begins with this plus the number of characters that it shares with the same
// word of the address before. An address ends with kEnd.
constexpr unsigned char kWord = 0x80;
constexpr std::size_t kMostShared = 0x7f;
constexpr char kEnd = '\n';

bool is_word(char letter) { return static_cast<unsigned char>(letter) >= kWord; }

// An empty address has no words.
std::vector<std::string_view> words_of(std::string_view address) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; !address.empty() && begin <= address.size();) {
    const auto end = std::min(address.find(' ', begin), address.size());
    words.push_back(address.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

UsageError not_addresses(std::string_view reason) {
  return UsageError(
      fmt::format("what rank 0 sent as the addresses of the ranks is invalid: {}; start all ranks "
                  "with the same version of lockstep",
                  reason));
}

// The address at the begin of `text`, which it shortens by it. `before` are the words of the
// previous address; replaces them by those of this one.
std::string read_address(std::string_view& text, std::vector<std::string>& before) {
  const auto length = text.find(kEnd);
  if (length == std::string_view::npos) throw not_addresses("an address has no end");
  auto rest = text.substr(0, length);
  text.remove_prefix(length + 1);
  std::vector<std::string> words;
  std::string address;
  while (!rest.empty()) {
    if (!is_word(rest.front())) throw not_addresses("a word has no begin");
    const std::size_t shared = static_cast<unsigned char>(rest.front()) - kWord;
    const auto end = std::find_if(rest.begin() + 1, rest.end(), is_word) - rest.begin();
    const auto same = words.size() < before.size() ? before[words.size()] : std::string();
    if (shared > same.size()) throw not_addresses("a word shares more than there is");
    words.push_back(same.substr(0, shared));
    words.back() += rest.substr(1, static_cast<std::size_t>(end) - 1);
    if (words.size() > 1) address += ' ';
    address += words.back();
    rest.remove_prefix(static_cast<std::size_t>(end));
  }
  before = std::move(words);
  return address;
}

}  // namespace

std::string join_addresses(std::span<const std::string> addresses) {
  std::string text;
  std::vector<std::string_view> before;
  for (const auto& address : addresses) {
    auto words = words_of(address);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto word = words[i];
      const auto same = i < before.size() ? before[i] : std::string_view();
      const auto most = std::min({word.size(), same.size(), kMostShared});
      const auto shared = static_cast<std::size_t>(
          std::mismatch(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(most),
                        same.begin())
              .first -
          word.begin());
      text += static_cast<char>(kWord + shared);
      text += word.substr(shared);
    }
    text += kEnd;
    before = std::move(words);
  }
  return text;
}

std::vector<std::string> split_addresses(std::string_view text, int size) {
  std::vector<std::string> addresses;
  std::vector<std::string> before;
  while (!text.empty()) addresses.push_back(read_address(text, before));
  if (std::ssize(addresses) == size) return addresses;
  throw not_addresses(fmt::format("it has {} addresses of {} ranks", addresses.size(), size));
}

std::string StoreAddressExchange::key_of(int rank) const {
  return fmt::format("{}/{}", prefix_, rank);
}

void StoreAddressExchange::exchange(const std::string& own) {
  if (std::any_of(own.begin(), own.end(),
                  [](char each) { return is_word(each) || each == kEnd; })) {
    throw UsageError(
        fmt::format("the address {} of rank {} has a character that is not in ASCII: name an "
                    "interface with another name with --interface or LOCKSTEP_INTERFACE",
                    own, world_.rank()));
  }
  auto& store = world_.store();
  if (!own.empty() && world_.rank() != 0) store.set(key_of(world_.rank()), own, deadline_);
  store.barrier(prefix_, all_ranks(world_.size()), deadline_);
  if (world_.rank() != 0) return;
  addresses_ = collect(own);
  store.set(key_of_all(), join_addresses(addresses_), deadline_);
}

// At rank 0, after the barrier: an address that is not stored now is empty.
std::vector<std::string> StoreAddressExchange::collect(const std::string& own) const {
  std::vector<std::string> addresses{own};
  for (int rank = 1; rank < world_.size(); ++rank) {
    const auto value = world_.store().try_get(key_of(rank), deadline_).value_or(StoreValue{});
    addresses.emplace_back(reinterpret_cast<const char*>(value.data()), value.size());
  }
  return addresses;
}

std::string StoreAddressExchange::of(int rank) {
  if (addresses_.empty()) {
    const Member from{MemberKind::rank, 0};
    addresses_ =
        split_addresses(world_.store().get_text(key_of_all(), deadline_, from), world_.size());
  }
  return addresses_[static_cast<std::size_t>(rank)];
}

}  // namespace lockstep
