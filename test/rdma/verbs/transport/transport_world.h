// Two Transports in this process over the fake device, for their tests. The test connects their queue pairs
// itself: there are no introductions, and no Links.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/devices/fake_rails.h"
#include "rdma/verbs/transport/transport.h"

namespace ch3_offload {

/// A process with one peer. It notes what the Transport asks and tells, and ends a link that is lost.
class TransportEnd final : public Transport::Client, private Rail::Client {
 public:
  struct Options {
    std::uint32_t send_slots = 64;
    std::size_t slot_bytes = 512;
  };

  TransportEnd(PeerId self, const Options& options)
      : rails(open_rails({.slot_bytes = options.slot_bytes, .send_queue_depth = Link::kSendQueueDepth})),
        registrations(rails),
        transport(rails, registrations, make_send_slots(rails, options.send_slots), Log(&take_line, this),
                  *this),
        peer(PeerId{1 - index_of(self)}) {
    transport.make_room(2);
    for (const std::unique_ptr<Rail>& rail : rails)
      peer.pairs[peer.pair_count++] = {rail->index, rail->index};
    if (rails.size() > 1) peer.second = std::make_unique<VerbsLane>(peer, 1);
  }

  /// Returns how much was found.
  std::size_t poll(std::size_t budget = 64) {
    transport.begin_poll(sink);
    emptied = transport.take_completions(budget);
    for (const std::unique_ptr<Rail>& rail : rails) {
      rail->take_events(*this);
      rail->destroy_stopped(monotonic_ns(), [&](VerbsLane& lane) {
        lane.link.state = LinkState::kNone;
        transport.stop(lane);
      });
    }
    if (ends_peer && peer.dying && peer.main.link.state == LinkState::kNone) {
      peer.dying = false;
      peer.down = true;
      transport.end_peer(peer);
    }
    return transport.end_poll();
  }
  /// Gives the lane's queue pair up. Two polls take what it has brought, and then its state is kNone.
  void stop(VerbsLane& lane) {
    lane.link.state = LinkState::kDraining;
    rails[lane.rail]->stop(std::move(lane.link.queue_pair), lane, Rail::End::kBroken);
  }
  Status try_send(std::span<const std::byte> message) {
    std::span<std::byte> slot;
    const Status status = transport.reserve(peer, message.size(), slot);
    if (status != Status::kOk) return status;
    EXPECT_EQ(slot.size(), message.size());
    std::memcpy(slot.data(), message.data(), message.size());
    transport.commit(peer, message.size());
    return Status::kOk;
  }
  /// The `n`th message of a test.
  static std::vector<std::byte> message(std::uint64_t n) { return Pattern(n).bytes(1 + n * 37 % 500); }
  /// Whether the messages that arrived are the first `count` ones, in their order.
  bool got(std::size_t count) const {
    std::size_t n = 0;
    for (const RecordingSink::Event& event : sink.events) {
      if (event.kind != RecordingSink::Kind::kMessage) continue;
      if (event.bytes != message(n++)) return false;
    }
    return n == count;
  }
  Link& link() { return peer.main.link; }

  void want_link(VerbsLane& lane) noexcept override { wanted.push_back(&lane); }
  void lose_link(VerbsLane& lane, const char* why) noexcept override {
    if (lane.link.queue_pair == nullptr) return;
    lost.emplace_back(why);
    stop(lane);
  }
  void on_first_item(VerbsLane& lane) noexcept override {
    ++first_items;
    lane.link.state = LinkState::kUp;
  }
  void on_park(VerbsLane& lane) noexcept override {
    ++parks;
    lane.link.park_heard = true;
  }
  void on_all_retired(VerbsLane&) noexcept override { ++all_retired; }
  void on_credit_wanted(VerbsLane&) noexcept override { ++credit_wanted; }
  void on_peer_over(VerbsEndpoint& whom, Status reason) noexcept override {
    if (!whom.is_over()) over.push_back(reason);
    whom.dying = true;
    whom.reason = reason;
  }
  void on_rail_failed(Rail& rail, const char*) noexcept override {
    rail.lost = true;
    failed_rails.push_back(&rail);
  }

  std::vector<std::unique_ptr<Rail>> rails;
  Registrations registrations;
  Transport transport;
  VerbsEndpoint peer;
  RecordingSink sink;
  bool ends_peer = false;  ///< A peer that is over is ended once its link is.
  bool emptied = false;    ///< What take_completions() returned last.
  // What the Transport has told.
  std::vector<VerbsLane*> wanted;
  std::vector<std::string> lost;
  std::vector<Status> over;
  std::vector<Rail*> failed_rails;
  int first_items = 0, parks = 0, all_retired = 0, credit_wanted = 0;
  std::vector<std::string> lines;

 private:
  static void take_line(void* self, LogScope, const char* line) {
    static_cast<TransportEnd*>(self)->lines.emplace_back(line);
  }
  void on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept override { lose_link(lane, why); }
  void on_port(Rail&, bool) noexcept override {}
  void on_address_changed(Rail&, const char*) noexcept override {}
  void on_device_failed(Rail& rail, const char*, LogScope) noexcept override { rail.lost = true; }
};

/// Writes if there is room, as the provider does.
inline Status write_from(TransportEnd& from, const std::byte* source, std::size_t length_bytes,
                         const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                         WorkId work, bool striped) {
  const Status status = from.transport.may_write(from.peer);
  if (status == Status::kOk)
    from.transport.write(from.peer, source, length_bytes, region, destination, immediate, work, striped);
  return status;
}

class Transports : public FakeRails {
 protected:
  using Kind = RecordingSink::Kind;

  void make(const TransportEnd::Options& options = {}, const fake_verbs::Config& fake = {}) {
    one_.reset();
    other_.reset();
    fake_verbs::reset(timeless(fake));
    one_ = std::make_unique<TransportEnd>(PeerId{0}, options);
    other_ = std::make_unique<TransportEnd>(PeerId{1}, options);
  }
  TransportEnd& one() { return *one_; }
  TransportEnd& other() { return *other_; }
  /// The lane of that number.
  static VerbsLane& lane_of(TransportEnd& end, std::size_t index) {
    return index == 0 ? end.peer.main : *end.peer.second;
  }
  /// Connects a lane of both over rails of its number: what an introduction would do. The link of `one` goes
  /// on where `received_by_other` says. Returns how many items `one` sends again.
  std::uint64_t join(std::size_t index, std::uint64_t received_by_other) {
    VerbsLane &mine = lane_of(one(), index), &theirs = lane_of(other(), index);
    for (TransportEnd* const end : {&one(), &other()}) {
      VerbsLane& lane = lane_of(*end, index);
      lane.rail = static_cast<std::uint8_t>(index);
      Result<QueuePair> made = end->rails[lane.rail]->make_queue_pair(lane);
      EXPECT_TRUE(made.ok());
      lane.link.queue_pair = std::move(made.value());
    }
    Rail &my_rail = *one().rails[index], &their_rail = *other().rails[index];
    EXPECT_TRUE(
        my_rail.connect(mine.link.queue_pair.get(), 0, offer_of(their_rail, *theirs.link.queue_pair)));
    EXPECT_TRUE(
        their_rail.connect(theirs.link.queue_pair.get(), 0, offer_of(my_rail, *mine.link.queue_pair)));
    for (TransportEnd* const end : {&one(), &other()}) end->transport.begin_poll(end->sink);
    const std::uint64_t again = one().transport.resume(mine, received_by_other, theirs.link.grant());
    other().transport.resume(theirs, mine.link.received(), mine.link.grant());
    mine.link.state = theirs.link.state = LinkState::kUp;
    one().transport.start(mine);
    other().transport.start(theirs);
    for (TransportEnd* const end : {&one(), &other()}) end->transport.end_poll();
    return again;
  }
  std::uint64_t join(std::size_t index = 0) { return join(index, lane_of(other(), index).link.received()); }
  void make_joined(const TransportEnd::Options& options = {}, const fake_verbs::Config& fake = {}) {
    make(options, fake);
    join();
  }
  /// Both lose the link of the main lane, and take what it has brought.
  void break_link() {
    for (TransportEnd* const end : {&one(), &other()}) {
      if (end->link().queue_pair != nullptr) end->stop(end->peer.main);
      for (int i = 0; i < 2; ++i) end->poll();
      EXPECT_EQ(end->link().state, LinkState::kNone);
    }
  }
  /// Polls both until neither finds anything.
  void settle() {
    for (int quiet = 0; quiet < 3; ++quiet)
      if (one().poll() + other().poll() > 0) quiet = 0;
  }
  /// Sends messages `first` .. `end` - 1 from `one`, polling where there is no room.
  void send(std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t n = first; n < end; ++n) {
      Status status;
      for (int polls = 0; (status = one().try_send(TransportEnd::message(n))) == Status::kAgain; ++polls) {
        ASSERT_LT(polls, 10) << "no room for message " << n;
        other().poll();
        one().poll();
      }
      ASSERT_EQ(status, Status::kOk) << n;
    }
  }
  static void hold_acknowledgements(bool held) {
    fake_verbs::adjust([&](fake_verbs::Config& config) {
      config.acknowledge_delay = held ? std::chrono::hours(1) : std::chrono::hours(0);
    });
  }
  /// Posts a message past the Transport of `end`, as a peer may that does not follow the protocol.
  static void post_raw(VerbsLane& lane, std::span<const std::byte> message) {
    ibv_sge piece{};
    piece.addr = reinterpret_cast<std::uintptr_t>(message.data());
    piece.length = static_cast<std::uint32_t>(message.size());
    ibv_send_wr request{}, *refused = nullptr;
    request.wr_id = kSendBit;
    request.sg_list = &piece;
    request.num_sge = message.empty() ? 0 : 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    ASSERT_EQ(ibv_post_send(lane.link.queue_pair.get(), &request, &refused), 0);
  }
  static std::vector<std::byte> raw(std::uint8_t kind, std::size_t payload_bytes) {
    SlotHeader header;
    header.kind = kind;
    std::vector<std::byte> bytes(sizeof header + payload_bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }

 private:
  std::unique_ptr<TransportEnd> one_, other_;
};

}  // namespace ch3_offload
