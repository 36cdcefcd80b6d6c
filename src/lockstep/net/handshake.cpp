#include "lockstep/net/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/net/cryptography_internal.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "LKS1";
constexpr std::size_t kNonceBytes = sizeof(HandshakeNonce);
constexpr std::size_t kHelloBytes = kMagic.size() + kNonceBytes;
constexpr std::size_t kReplyBytes = kNonceBytes + sizeof(Mac);
constexpr std::size_t kProofBytes = sizeof(Mac);

using Bytes = std::vector<std::byte>;

void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

void append(Bytes& bytes, std::string_view text) { append(bytes, std::as_bytes(std::span(text))); }

// job | round. The round has a fixed length, so different contexts give different bytes.
void append(Bytes& bytes, const HandshakeContext& context) {
  append(bytes, context.job);
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<std::byte>(context.round >> shift));
  }
}

void require_short(const HandshakeContext& context) {
  if (context.job.size() <= kMaxJobBytes) return;
  throw UsageError(fmt::format("job id {} has {} bytes: give at most {}", in_quotes(context.job),
                               context.job.size(), kMaxJobBytes));
}

Secret derive(const Secret& secret, std::span<const std::byte> salt,
              std::span<const std::byte> info) {
  std::array<std::byte, Secret::kBytes> key{};
  hkdf_sha256(secret.bytes(), salt, info, key);
  auto derived = Secret::from_bytes(key);
  wipe(key);
  return derived;
}

Secret derive_mac_key(const Secret& secret, const HandshakeContext& context) {
  require_short(context);
  Bytes salt;
  append(salt, context);
  Bytes info;
  append(info, "auth");
  return derive(secret, salt, info);
}

struct Transcript {
  const HandshakeNonce& client_nonce;
  const HandshakeNonce& server_nonce;
  const HandshakeContext& context;
};

Mac prove(const Secret& mac_key, std::string_view label, const Transcript& transcript) {
  Bytes data;
  append(data, label);
  append(data, kMagic);
  append(data, transcript.client_nonce);
  append(data, transcript.server_nonce);
  append(data, transcript.context);
  return hmac_sha256(mac_key.bytes(), data);
}

Secret derive_session_key(const Secret& secret, std::string_view label,
                          const Transcript& transcript) {
  Bytes salt;
  append(salt, transcript.client_nonce);
  append(salt, transcript.server_nonce);
  Bytes info;
  append(info, transcript.context);
  append(info, label);
  return derive(secret, salt, info);
}

}  // namespace

HandshakeNonce fresh_nonce() {
  HandshakeNonce nonce{};
  fill_random(nonce);
  return nonce;
}

HandshakeKeys::HandshakeKeys(const Secret& secret, HandshakeContext context)
    : secret_(secret.copy()),
      mac_key_(derive_mac_key(secret, context)),
      context_(std::move(context)) {}

Handshake Handshake::client(const Secret& secret, HandshakeContext context,
                            const HandshakeNonce& nonce) {
  Handshake handshake(Role::client,
                      std::make_shared<const HandshakeKeys>(secret, std::move(context)));
  handshake.client_nonce_ = nonce;
  append(handshake.output_, kMagic);
  append(handshake.output_, nonce);
  return handshake;
}

Handshake Handshake::server(const Secret& secret, HandshakeContext context,
                            const HandshakeNonce& nonce) {
  Handshake handshake(Role::server,
                      std::make_shared<const HandshakeKeys>(secret, std::move(context)));
  handshake.server_nonce_ = nonce;
  handshake.nonce_given_ = true;
  return handshake;
}

Handshake Handshake::server(std::shared_ptr<const HandshakeKeys> keys) {
  return {Role::server, std::move(keys)};
}

Handshake::Handshake(Role role, std::shared_ptr<const HandshakeKeys> keys)
    : role_(role),
      state_(role == Role::client ? State::reply : State::hello),
      keys_(std::move(keys)) {}

std::size_t Handshake::feed(std::span<const std::byte> bytes) {
  if (state_ == State::refused) throw UsageError(refusal_);
  std::size_t taken = 0;
  while (taken < bytes.size() && !done()) {
    const auto count = std::min(wanted(), bytes.size() - taken);
    append(received_, bytes.subspan(taken, count));
    taken += count;
    if (state_ == State::hello) check_magic();
    if (wanted() != 0) break;
    switch (state_) {
      case State::hello:
        receive_hello();
        break;
      case State::reply:
        receive_reply();
        break;
      default:
        receive_proof();
    }
    received_.clear();
  }
  return taken;
}

std::vector<std::byte> Handshake::release_output() noexcept { return std::exchange(output_, {}); }

std::size_t Handshake::wanted() const noexcept {
  switch (state_) {
    case State::hello:
      return kHelloBytes - received_.size();
    case State::reply:
      return kReplyBytes - received_.size();
    case State::proof:
      return kProofBytes - received_.size();
    default:
      return 0;
  }
}

SessionKeys Handshake::keys() const {
  LOCKSTEP_ASSERT(done(), "keys are for an authenticated peer");
  const Transcript transcript{client_nonce_, server_nonce_, keys_->context_};
  auto to_server = derive_session_key(keys_->secret_, "c2s", transcript);
  auto to_client = derive_session_key(keys_->secret_, "s2c", transcript);
  if (role_ == Role::client) return {std::move(to_server), std::move(to_client)};
  return {std::move(to_client), std::move(to_server)};
}

// Checked at every byte: a peer with another protocol may never send a complete hello.
void Handshake::check_magic() {
  const auto count = std::min(received_.size(), kMagic.size());
  const std::string_view begin(reinterpret_cast<const char*>(received_.data()), count);
  if (begin == kMagic.substr(0, count)) return;
  refuse(
      fmt::format("a connection began with {}, so it does not come from this version of lockstep: "
                  "check which port that process should connect to",
                  in_quotes(begin)));
}

void Handshake::receive_hello() {
  std::copy_n(received_.begin() + kMagic.size(), kNonceBytes, client_nonce_.begin());
  if (!nonce_given_) server_nonce_ = fresh_nonce();
  append(output_, server_nonce_);
  append(output_,
         prove(keys_->mac_key_, "server", {client_nonce_, server_nonce_, keys_->context_}));
  state_ = State::proof;
}

void Handshake::receive_reply() {
  std::copy_n(received_.begin(), kNonceBytes, server_nonce_.begin());
  const Transcript transcript{client_nonce_, server_nonce_, keys_->context_};
  const auto proof = std::span<const std::byte>(received_).subspan(kNonceBytes);
  if (!equal_in_constant_time(proof, prove(keys_->mac_key_, "server", transcript)))
    refuse_stranger();
  append(output_, prove(keys_->mac_key_, "client", transcript));
  state_ = State::done;
}

void Handshake::receive_proof() {
  const auto expected =
      prove(keys_->mac_key_, "client", {client_nonce_, server_nonce_, keys_->context_});
  if (!equal_in_constant_time(received_, expected)) refuse_stranger();
  state_ = State::done;
}

void Handshake::refuse_stranger() {
  refuse(
      fmt::format("the other side does not know this job's secret, or does not belong to job {}, "
                  "round {}: give all processes of the job the same secret, and end processes of "
                  "earlier runs",
                  in_quotes(keys_->context_.job), keys_->context_.round));
}

void Handshake::refuse(std::string why) {
  state_ = State::refused;
  output_.clear();
  refusal_ = std::move(why);
  throw UsageError(refusal_);
}

}  // namespace lockstep
