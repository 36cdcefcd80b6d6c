// The packets of the network: how they are sent, received and handled. With the lock held.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/mpi/network_internal.h"

namespace lockstep {
namespace {

constexpr int kMostPiecesOnTheWay = 4;  // to one peer: 1 MiB of copies
constexpr int kMostReceives = 64;       // begun by one poll
constexpr std::size_t kMostSpare = 32;
constexpr int kTag = 0;
constexpr std::uint64_t kIsMessage = ~std::uint64_t{0};  // in place of the part of a transfer

// The header of a packet. The ranks of a job run the same release on the same kind of machine.
struct Header {
  std::uint64_t end = 0;  // of the receiver
  std::uint64_t part = 0;
  std::uint64_t number = 0;
  std::uint64_t offset = 0;
};

std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

}  // namespace

std::string mpi_error_in_words(int error) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

// Returns whether anything has arrived.
bool MpiNetwork::move() {
  if (is_down_) return false;
  complete_requests();
  begin_receives();
  for (auto& [rank, peer] : peers_) send_pieces(rank, peer);
  return handle_arrivals();
}

void MpiNetwork::complete_requests() {
  if (requests_.empty()) return;
  std::vector<int> indices(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  int count = 0;
  const int error = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                 indices.data(), statuses.data());
  if (count == MPI_UNDEFINED) return;
  indices.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    auto& packet = *tracked_[static_cast<std::size_t>(indices[i])];
    packet.is_done = true;
    if (packet.is_sent) {
      auto& peer = peers_[packet.peer];
      --peer.packets_on_the_way;
      if (packet.own != 0) --peer.pieces_on_the_way;
      if (packet.sent != nullptr) packet.sent->fetch_add(packet.length);
      give_back(std::move(packet.bytes));
    }
    if (error == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR != MPI_SUCCESS) {
      lose(packet.peer, mpi_error_in_words(statuses[i].MPI_ERROR));
    }
  }
  // From the last on, so that the other indices stay valid.
  std::sort(indices.rbegin(), indices.rend());
  for (const int index : indices) {
    const auto at = static_cast<std::size_t>(index);
    std::swap(requests_[at], requests_.back());
    std::swap(tracked_[at], tracked_.back());
    requests_.pop_back();
    tracked_.pop_back();
  }
}

void MpiNetwork::begin_receives() {
  for (int i = 0; i < kMostReceives; ++i) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    const int probed = MPI_Improbe(MPI_ANY_SOURCE, kTag, communicator_, &found, &message, &status);
    if (probed != MPI_SUCCESS || found == 0) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    auto packet = std::make_shared<Packet>();
    packet->peer = status.MPI_SOURCE;
    packet->bytes = buffer(static_cast<std::size_t>(bytes));
    peers_[packet->peer].arriving.push_back(packet);
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Imrecv(packet->bytes.data(), bytes, MPI_BYTE, &message, &request);
    if (error != MPI_SUCCESS) {
      lose(packet->peer, mpi_error_in_words(error));
      continue;
    }
    // What has arrived as a whole, as small packets do, is complete at once.
    int is_done = 0;
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    packet->is_done = is_done != 0;
    if (!packet->is_done) track(request, std::move(packet));
  }
}

bool MpiNetwork::handle_arrivals() {
  bool has_arrived = false;
  for (auto& [rank, peer] : peers_) {
    while (!peer.arriving.empty() && peer.arriving.front()->is_done) {
      auto bytes = std::move(peer.arriving.front()->bytes);
      peer.arriving.pop_front();
      has_arrived = true;
      if (bytes.empty()) {
        peer.said_farewell = true;
        if (!peer.loss) peer.loss = "";
      } else if (peer.loss && !peer.loss->empty()) {
        // It has sent something invalid before, or failed: nothing more is used.
      } else if (!handle_packet(rank, bytes)) {
        lose(rank, "it sent an invalid packet");
      }
      give_back(std::move(bytes));
    }
  }
  return has_arrived;
}

// Returns false for an invalid packet.
bool MpiNetwork::handle_packet(int peer, std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes = bytes.subspan(sizeof(header));
  const auto end = ends_.find(header.end);
  if (end == ends_.end()) return header.end <= last_end_;  // of a group that this rank has left
  if (header.part == kIsMessage) return end->second.end->receive(peer, bytes, post_);
  const TransferKey key{header.number, static_cast<std::uint32_t>(header.part)};
  const auto expected = end->second.expected.find({peer, key});
  if (expected == end->second.expected.end()) {
    return end->second.is_cut_off || end->second.forgotten.contains(header.number);
  }
  const auto [destination, received] = expected->second;
  const auto arrived = received->load(std::memory_order_relaxed);
  if (header.offset != arrived || bytes.size() > destination.size() - arrived) return false;
  std::memcpy(destination.data() + arrived, bytes.data(), bytes.size());
  if (arrived + bytes.size() == destination.size()) end->second.expected.erase(expected);
  // The memory of the transfer may end from here on.
  received->store(arrived + bytes.size(), std::memory_order_seq_cst);
  return true;
}

// Groups take turns, one piece each.
void MpiNetwork::send_pieces(int rank, Peer& peer) {
  while (peer.pieces_on_the_way < kMostPiecesOnTheWay && !peer.queues.empty()) {
    auto next = peer.queues.upper_bound(peer.last_served);
    if (next == peer.queues.end()) next = peer.queues.begin();
    peer.last_served = next->first;
    if (next->second.empty()) {
      peer.queues.erase(next);
      continue;
    }
    auto& outgoing = next->second.front();
    const auto length = std::min(outgoing.bytes.size(), kMaxPieceBytes);
    const Header header{outgoing.to, outgoing.key.part, outgoing.key.number, outgoing.offset};
    auto bytes = packet_of(bytes_of(header), outgoing.bytes.first(length));
    outgoing.offset += length;
    outgoing.bytes = outgoing.bytes.subspan(length);
    ++peer.pieces_on_the_way;
    send_packet({.peer = rank,
                 .bytes = std::move(bytes),
                 .own = next->first,
                 .number = outgoing.key.number,
                 .length = length,
                 .sent = outgoing.sent});
    if (outgoing.bytes.empty()) next->second.pop_front();
  }
}

void MpiNetwork::forget_pieces(std::uint64_t own, std::optional<std::uint64_t> number) {
  for (const auto& packet : tracked_) {
    if (packet->own == own && (!number || packet->number == *number)) packet->sent = nullptr;
  }
}

void MpiNetwork::send_packet(Packet content) {
  const int rank = content.peer;
  auto& peer = peers_[rank];
  if (is_down_ || (peer.loss && !content.bytes.empty())) return;
  auto packet = std::make_shared<Packet>(std::move(content));
  packet->is_sent = true;
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Isend(packet->bytes.data(), static_cast<int>(packet->bytes.size()),
                              MPI_BYTE, rank, kTag, communicator_, &request);
  if (error != MPI_SUCCESS) return lose(rank, mpi_error_in_words(error));
  ++peer.packets_on_the_way;
  track(request, std::move(packet));
}

void MpiNetwork::track(MPI_Request request, std::shared_ptr<Packet> packet) {
  requests_.push_back(request);
  tracked_.push_back(std::move(packet));
}

void MpiNetwork::lose(int peer, std::string why) {
  auto& loss = peers_[peer].loss;
  if (!loss) loss = std::move(why);
}

MpiNetwork::Bytes MpiNetwork::buffer(std::size_t bytes) {
  if (spare_.empty() || bytes < kMaxPieceBytes / 2) return Bytes(bytes);
  auto memory = std::move(spare_.back());
  spare_.pop_back();
  memory.resize(bytes);
  return memory;
}

void MpiNetwork::give_back(Bytes bytes) {
  if (bytes.capacity() >= kMaxPieceBytes && spare_.size() < kMostSpare) {
    spare_.push_back(std::move(bytes));
  }
}

MpiNetwork::Bytes MpiNetwork::packet_of(std::span<const std::byte> header,
                                        std::span<const std::byte> content) {
  auto bytes = buffer(header.size() + content.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  if (!content.empty()) std::memcpy(bytes.data() + header.size(), content.data(), content.size());
  return bytes;
}

void MpiNetwork::post_locked(int peer, std::uint64_t to, std::span<const std::byte> message) {
  const Header header{.end = to, .part = kIsMessage};
  send_packet({.peer = peer, .bytes = packet_of(bytes_of(header), message)});
}

}  // namespace lockstep
