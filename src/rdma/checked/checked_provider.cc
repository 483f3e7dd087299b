#include "rdma/checked/checked_provider.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "rdma/checked/checksum.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

/// Of a process that leaves: it has heard all that it wants to hear.
class LeavingSink final : public Sink {
 public:
  Delivery on_message(PeerId, std::span<const std::byte>) noexcept override { return Delivery::kTaken; }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  bool awaits(PeerId) const noexcept override { return false; }
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId, Status) noexcept override {}
};

constexpr std::size_t kLeavingBudget = 256;

}  // namespace

/// The caller's sink, with a count of what it is told.
class CheckedProvider::CountingSink final : public Sink {
 public:
  explicit CountingSink(Sink& sink) noexcept : sink_(sink) {}
  std::size_t told() const noexcept { return told_; }
  /// The sink holds a message: nothing more is delivered in this poll().
  bool holds() const noexcept { return holds_; }

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    ++told_;
    const Delivery delivery = sink_.on_message(peer, message);
    holds_ = delivery == Delivery::kHeld;
    return delivery;
  }
  void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
    ++told_;
    sink_.on_write_arrived(peer, immediate, length_bytes);
  }
  std::optional<PeerId> writer_of(Immediate immediate) const noexcept override {
    return sink_.writer_of(immediate);
  }
  std::byte* on_write_shared(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
    return sink_.on_write_shared(peer, immediate, length_bytes);
  }
  bool is_landing(PeerId peer, Immediate immediate, const std::byte* address,
                  std::size_t length_bytes) const noexcept override {
    return sink_.is_landing(peer, immediate, address, length_bytes);
  }
  bool awaits(PeerId peer) const noexcept override { return sink_.awaits(peer); }
  void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
    ++told_;
    sink_.on_write_done(peer, work, status);
  }
  void on_peer_down(PeerId peer, Status reason) noexcept override {
    ++told_;
    sink_.on_peer_down(peer, reason);
  }

 private:
  Sink& sink_;
  std::size_t told_ = 0;
  bool holds_ = false;
};

/// What poll() does with the events of the provider below.
class CheckedProvider::Filter final : public Sink {
 public:
  Filter(CheckedProvider& provider, Sink& sink) noexcept : provider_(provider), sink_(sink) {}

  Delivery on_message(PeerId id, std::span<const std::byte> message) noexcept override {
    if (CheckedEndpoint* const peer = provider_.meet(id)) return provider_.on_frame(*peer, message, sink_);
    provider_.distrust(id);
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept override {
    if (CheckedEndpoint* const peer = provider_.meet(id))
      provider_.on_write_arrived(*peer, immediate, length_bytes, sink_);
    else
      provider_.distrust(id);
  }
  std::optional<PeerId> writer_of(Immediate immediate) const noexcept override {
    return sink_.writer_of(immediate);
  }
  std::byte* on_write_shared(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
    return sink_.on_write_shared(peer, immediate, length_bytes);
  }
  bool awaits(PeerId id) const noexcept override {
    const CheckedEndpoint* const peer = provider_.peers_.find(id);
    return (peer != nullptr && peer->sent && !peer->sent->is_all_received()) || sink_.awaits(id);
  }
  void on_write_done(PeerId id, WorkId work, Status status) noexcept override {
    provider_.on_write_done(id, work, status, sink_);
  }
  void on_peer_down(PeerId id, Status reason) noexcept override { provider_.on_peer_down(id, reason, sink_); }

 private:
  CheckedProvider& provider_;
  Sink& sink_;
};

CheckedProvider::CheckedProvider(std::unique_ptr<Provider> below, Log log) : CheckedProvider(*below, log) {
  owned_ = std::move(below);
}

CheckedProvider::CheckedProvider(Provider& below, Log log)
    : below_(below),
      log_(log),
      capabilities_(below.capabilities()),
      longest_frame_bytes_(capabilities_.max_slot_bytes) {
  assert(have_checksums() && longest_frame_bytes_ >= kLeastSlotBytes + sizeof(CheckedHeader));
  capabilities_.max_slot_bytes -= sizeof(CheckedHeader);
  for (std::uint32_t i = 0; i < kMostWrites; ++i) writes_[i].next = i + 1 < kMostWrites ? i + 1 : kNoWrite;
}

CheckedProvider::~CheckedProvider() {
  while (owned_ != nullptr && !leave()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

std::unique_ptr<Provider> with_checksums(std::unique_ptr<Provider> below, Log log) {
  return std::make_unique<CheckedProvider>(std::move(below), log);
}

// Connecting

std::string CheckedProvider::local_address() const {
  return std::string(kCheckedAddress) + below_.local_address();
}

bool CheckedProvider::reaches(std::string_view address) const noexcept {
  return address.starts_with(kCheckedAddress) && below_.reaches(address.substr(kCheckedAddress.size()));
}

std::string CheckedProvider::address_of(PeerId peer) const {
  const std::string address = below_.address_of(peer);
  return address.empty() ? address : std::string(kCheckedAddress) + address;
}

/// REQUIRES: its number may name somebody (PeerTable::is_current()). Throws std::bad_alloc.
CheckedEndpoint& CheckedProvider::find_or_make(PeerId id) {
  if (CheckedEndpoint* const known = peers_.find(id)) return *known;
  if (attended_.capacity() <= known_) attended_.reserve(2 * known_ + 8);
  CheckedEndpoint& made = peers_.make(id);
  ++known_;
  return made;
}

/// Somebody of whom something has come. Null: there is no memory, or the number is of an ended generation.
CheckedEndpoint* CheckedProvider::meet(PeerId id) noexcept {
  if (!peers_.is_current(id)) return nullptr;
  try {
    return &find_or_make(id);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Result<Endpoint*> CheckedProvider::connect(PeerId id, std::string_view address,
                                           const std::optional<PeerNames>& names) {
  if (!address.starts_with(kCheckedAddress))
    return Error{
        Status::kUnreachable, 0,
        "'" + std::string(address) + "' is the address of a process without checksums; this one has them"};
  if (!peers_.is_current(id))
    return Error{Status::kPeerFailed, 0, "process " + std::to_string(index_of(id)) + " has gone"};
  CheckedEndpoint& peer = find_or_make(id);
  if (peer.state == PeerState::kDown)
    return Error{Status::kPeerFailed, 0, "process " + std::to_string(index_of(id)) + " has failed"};
  if (!peer.sent) peer.sent.emplace(longest_frame_bytes_);
  const Result<Endpoint*> made = below_.connect(id, address.substr(kCheckedAddress.size()), names);
  if (!made.ok()) return made.error();
  if (below_.max_slot_bytes(*made.value()) < kLeastSlotBytes + sizeof(CheckedHeader))
    return Error{Status::kUnreachable, 0,
                 "the process at '" + std::string(address) + "' takes too short messages"};
  peer.below = made.value();
  return &peer;
}

/// Whether the peer is not connected to, and may still be.
bool CheckedProvider::may_connect(const CheckedEndpoint& peer) noexcept {
  return peer.below == nullptr && peer.connect_in != CheckedEndpoint::kNever;
}

/// A peer that sends must be answered, also if this process does not send to it. Returns false if that is not
/// possible, or not yet.
bool CheckedProvider::connect_back(CheckedEndpoint& peer) noexcept {
  if (peer.below != nullptr) return true;
  if (polls_ < peer.connect_in) return false;
  peer.connect_in = polls_ + kConnectPolls;
  try {
    const Result<Endpoint*> made = connect(peer.id, address_of(peer.id), {});
    if (made.ok()) return true;
    const Status why = made.error().status;
    if (why == Status::kAgain || why == Status::kNoMemory) return false;
    peer.connect_in = CheckedEndpoint::kNever;
    // Of a peer that has failed, on_peer_down() tells.
    if (why != Status::kPeerFailed)
      fail(peer, ("it cannot be answered (" + made.error().message + ")").c_str());
  } catch (const std::bad_alloc&) {  // It is tried again.
  }
  return false;
}

bool CheckedProvider::forget(PeerId id) noexcept {
  if (!below_.forget(id)) return false;
  if (CheckedEndpoint* const peer = peers_.find(id)) {
    if (peer->is_listed) std::erase(attended_, peer);
    peer->is_listed = false;
    if (!peers_.forget(id)) return false;
    --known_;
    return true;
  }
  return peers_.forget(id);
}

std::size_t CheckedProvider::max_slot_bytes(Endpoint& endpoint) const noexcept {
  return below_.max_slot_bytes(*of(endpoint).below) - sizeof(CheckedHeader);
}

WriteTerms CheckedProvider::write_terms(Endpoint& endpoint) noexcept {
  WriteTerms terms = below_.write_terms(*of(endpoint).below);
  // Memory that another registrar grants is not known here, and could not be checked.
  if (terms.registrar != nullptr) terms = {nullptr, SIZE_MAX, nullptr};
  return terms;
}

// What leaves

/// Completes a frame, whose body is there.
void CheckedProvider::seal(CheckedEndpoint& peer, std::span<std::byte> frame, Kind kind,
                           std::uint32_t number) noexcept {
  CheckedHeader header;
  header.number = number;
  header.received = peer.awaited;
  header.kind = kind;
  std::memcpy(frame.data(), &header, sizeof header);
  header.checksum = checksum(frame.subspan(sizeof header.checksum));
  std::memcpy(frame.data(), &header.checksum, sizeof header.checksum);
  peer.told = peer.awaited;
  peer.untold_bytes = 0;
  peer.must_tell = false;
}

Status CheckedProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                                std::span<std::byte>& slot) noexcept {
  CheckedEndpoint& peer = of(endpoint);
  if (peer.state == PeerState::kDown) return Status::kPeerFailed;
  const std::size_t frame_bytes = sizeof(CheckedHeader) + length_bytes;
  // What waits goes first.
  Status status = push(peer);
  if (status == Status::kOk) {
    const std::span<std::byte> frame = peer.sent->reserve(frame_bytes);
    if (frame.empty()) {
      status = Status::kAgain;
      // The peer cannot acknowledge parts that have not left.
      if (peer.has_parts) static_cast<void>(send_unnumbered(peer, Kind::kReceived));
    } else {
      status = below_.reserve(*peer.below, frame_bytes, peer.slot);
      slot = frame.subspan(sizeof(CheckedHeader));
    }
  }
  if (status == Status::kAgain) {
    peer.lacked_bytes = std::max(peer.lacked_bytes, frame_bytes);
    attend_to(peer);
  }
  return status;
}

void CheckedProvider::send_message(CheckedEndpoint& peer, std::size_t length_bytes, bool is_part) noexcept {
  const std::size_t frame_bytes = sizeof(CheckedHeader) + length_bytes;
  const std::span<std::byte> frame = peer.sent->reserved(frame_bytes);
  seal(peer, frame, Kind::kMessage, peer.sent->next_number());
  peer.sent->commit(frame_bytes, is_part);
  send_below(peer, peer.slot, frame, is_part);
}

/// The next frame that was not sent, in a slot that the provider below has reserved for it.
void CheckedProvider::send_below(CheckedEndpoint& peer, std::span<std::byte> slot,
                                 std::span<const std::byte> frame, bool is_part) noexcept {
  std::memcpy(slot.data(), frame.data(), frame.size());
  if (is_part)
    below_.commit_part(*peer.below, frame.size());
  else
    below_.commit(*peer.below, frame.size());
  peer.has_parts = is_part;
  peer.sent->sent();
}

/// Returns false if there is no room.
template <class Body>
bool CheckedProvider::send_numbered(CheckedEndpoint& peer, Kind kind, const Body& body) noexcept {
  constexpr std::size_t kBytes = sizeof(CheckedHeader) + sizeof(Body);
  const std::span<std::byte> frame = peer.sent->reserve(kBytes);
  if (frame.empty()) return false;
  std::memcpy(frame.data() + sizeof(CheckedHeader), &body, sizeof body);
  seal(peer, frame, kind, peer.sent->next_number());
  peer.sent->commit(kBytes, /*is_part=*/false);
  static_cast<void>(push(peer));
  return true;
}
template bool CheckedProvider::send_numbered(CheckedEndpoint&, Kind, const CheckedWritten&) noexcept;
template bool CheckedProvider::send_numbered(CheckedEndpoint&, Kind, const CheckedAnswer&) noexcept;

/// Returns false if there is no room.
bool CheckedProvider::send_unnumbered(CheckedEndpoint& peer, Kind kind) noexcept {
  std::span<std::byte> slot;
  if (below_.reserve(*peer.below, sizeof(CheckedHeader), slot) != Status::kOk) return false;
  seal(peer, slot, kind, peer.sent->unsent_number());
  below_.commit(*peer.below, sizeof(CheckedHeader));
  peer.has_parts = false;
  return true;
}

/// Sends what was not sent. kAgain: not all of it; the rest waits.
Status CheckedProvider::push(CheckedEndpoint& peer) noexcept {
  while (const std::optional<SentFrames::Frame> frame = peer.sent->unsent()) {
    std::span<std::byte> slot;
    const Status status = below_.reserve(*peer.below, frame->bytes.size(), slot);
    if (status != Status::kOk) {
      attend_to(peer);
      return status;
    }
    send_below(peer, slot, frame->bytes, frame->is_part);
  }
  return Status::kOk;
}

// What is to be done in poll()

std::size_t CheckedProvider::poll(Sink& sink, std::size_t budget) noexcept {
  CountingSink counting(sink);
  Filter filter(*this, counting);
  // A frame that tells the sink nothing is no event; the next one may be.
  for (int round = 0; round < kMostRounds; ++round) {
    ++polls_;
    const std::size_t found = below_.poll(filter, budget);
    while (unmet_count_ > 0) static_cast<void>(below_.end(unmet_[--unmet_count_]));
    if (!attended_.empty()) attend(counting);
    if (found != 0 && std::exchange(lacked_write_, false)) return counting.told() + 1;
    if (counting.told() + room_found_ != 0) return counting.told() + std::exchange(room_found_, 0);
    if (found == 0) return 0;
  }
  return 1;
}

/// Nobody wakes who has to try again to connect.
bool CheckedProvider::arm() noexcept {
  const bool must_connect = std::ranges::any_of(attended_, [](const CheckedEndpoint* peer) {
    return peer->state == PeerState::kUp && may_connect(*peer);
  });
  return !must_connect && below_.arm();
}

/// For want of memory something of it was lost, which it does not send again. One that is not noted is noted
/// with the next loss.
void CheckedProvider::distrust(PeerId id) noexcept {
  if (unmet_count_ < unmet_.size()) unmet_[unmet_count_++] = id;
}

void CheckedProvider::attend_to(CheckedEndpoint& peer) noexcept {
  if (std::exchange(peer.is_listed, true)) return;
  attended_.push_back(&peer);
}

void CheckedProvider::attend(CountingSink& sink) noexcept {
  for (std::size_t i = 0; i < attended_.size();) {
    CheckedEndpoint& peer = *attended_[i];
    attend(peer, sink);  // Others may come to the end of the list.
    if (needs_attention(peer)) {
      ++i;
      continue;
    }
    peer.is_listed = false;
    attended_[i] = attended_.back();
    attended_.pop_back();
  }
}

bool CheckedProvider::needs_attention(const CheckedEndpoint& peer) const noexcept {
  if (peer.state != PeerState::kUp) return peer.state == PeerState::kFailing;
  if (peer.below == nullptr && !may_connect(peer)) return false;
  return peer.must_ask || peer.must_tell || peer.told != peer.awaited || peer.lacked_bytes != 0 ||
         peer.unanswered > 0 || peer.first_stalled != kNoWrite || (peer.sent && !peer.sent->is_all_sent());
}

void CheckedProvider::attend(CheckedEndpoint& peer, CountingSink& sink) noexcept {
  if (peer.state == PeerState::kFailing) {
    peer.state = PeerState::kEnding;
    static_cast<void>(below_.end(peer.id));
  }
  if (peer.state != PeerState::kUp || !connect_back(peer)) return;
  if (peer.must_ask && send_unnumbered(peer, Kind::kRepeat)) {
    peer.must_ask = false;
    if (++peer.asked > kMostAsked) return fail(peer, "all that comes from it is damaged");
  }
  static_cast<void>(push(peer));
  if (peer.unanswered > 0) answer_writes(peer);
  if (peer.first_stalled != kNoWrite && !sink.holds()) go_on_writing(peer, sink);
  // Something that follows would tell it at no cost. Who sends much must not wait for it.
  const bool is_due = peer.must_tell || peer.heard_in != polls_ ||
                      peer.untold_bytes >= SentFrames::bytes_for(longest_frame_bytes_) / 4;
  if (is_due && (peer.told != peer.awaited || peer.must_tell) && peer.sent->is_all_sent())
    static_cast<void>(send_unnumbered(peer, Kind::kReceived));
  std::span<std::byte> slot;
  if (peer.lacked_bytes != 0 && peer.sent->is_all_sent() && !peer.sent->reserve(peer.lacked_bytes).empty() &&
      below_.reserve(*peer.below, peer.lacked_bytes, slot) == Status::kOk) {
    peer.lacked_bytes = 0;
    ++room_found_;
  }
}

// Ends

void CheckedProvider::fail(CheckedEndpoint& peer, const char* why) noexcept {
  if (peer.state != PeerState::kUp) return;
  peer.state = PeerState::kFailing;
  log_("process %u: %s; the connection with it ends", index_of(peer.id), why);
  attend_to(peer);
}

void CheckedProvider::on_peer_down(PeerId id, Status reason, Sink& sink) noexcept {
  if (CheckedEndpoint* const peer = peers_.find(id)) {
    peer->state = PeerState::kDown;
    peer->first_stalled = peer->last_stalled = kNoWrite;
    for (Write& write : writes_)
      if (write.state != Write::State::kFree && write.peer == peer) finish(write, Status::kPeerFailed, sink);
    peer->sent.reset();
    peer->arrived = {};
    peer->writes = {};
  }
  sink.on_peer_down(id, reason);
}

bool CheckedProvider::is_settled() const noexcept {
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->state == PeerState::kUp && peer->sent && !peer->sent->is_all_received())
      return false;
  return attended_.empty();
}

bool CheckedProvider::leave() noexcept {
  if (!has_left_) {
    const std::uint64_t now_ns = monotonic_ns();
    if (!leaving_since_ns_) {
      leaving_since_ns_ = now_ns;
      registered_.clear();  // Whose it was may have gone. What lands from now on is nobody's.
    }
    LeavingSink deaf;
    static_cast<void>(poll(deaf, kLeavingBudget));
    if (!is_settled() && elapsed_ns(now_ns, *leaving_since_ns_) < kLeavingNs) return false;
    has_left_ = true;
  }
  return below_.leave();
}

ProviderCounters CheckedProvider::counters() const noexcept {
  ProviderCounters counters = below_.counters();
  counters.damaged += damaged_;
  counters.network_sent_again += sent_again_;
  return counters;
}

}  // namespace ch3_offload
