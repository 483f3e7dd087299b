// Items over links: two Transports over the fake device whose queue pairs the test connects.

#include "rdma/verbs/transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "rdma/verbs/transport/transport_world.h"

namespace ch3_offload {
namespace {

/// Memory of one process, registered.
class Memory {
 public:
  Memory(TransportEnd& owner, std::size_t length_bytes, Access access)
      : bytes(length_bytes), registrations_(owner.registrations) {
    EXPECT_EQ(registrations_.add(bytes.data(), bytes.size(), access, false, region), Status::kOk);
  }
  ~Memory() {
    if (region.address != nullptr) registrations_.remove(region);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void deregister() { registrations_.remove(region); }
  RemoteMemory remote() const { return {reinterpret_cast<std::uintptr_t>(bytes.data()), region.remote_key}; }
  std::vector<std::byte> bytes;
  MemoryRegion region;

 private:
  Registrations& registrations_;
};

class TransportWrites : public Transports {
 protected:
  static constexpr Immediate kImmediate{0x1234'5678};
  static constexpr WorkId kWork{99};

  /// From `one` to `other`.
  void make_memory(std::size_t length_bytes) {
    source_ = std::make_unique<Memory>(one(), length_bytes, Access::kRead);
    target_ = std::make_unique<Memory>(other(), length_bytes, Access::kWrite);
    Pattern(5).fill(source_->bytes);
  }
  ~TransportWrites() override {
    source_.reset();
    target_.reset();
  }
  Status write(bool striped = false) {
    return write_from(one(), source_->bytes.data(), source_->bytes.size(), source_->region, target_->remote(),
                      kImmediate, kWork, striped);
  }
  /// The lengths that arrived with the write's immediate.
  std::vector<std::size_t> arrived() {
    std::vector<std::size_t> lengths;
    for (const RecordingSink::Event& event : other().sink.events)
      if (event.kind == Kind::kWriteArrived) {
        EXPECT_EQ(event.immediate, kImmediate);
        EXPECT_EQ(event.peer, PeerId{0});
        lengths.push_back(event.length_bytes);
      }
    return lengths;
  }
  /// How the writes ended.
  std::vector<Status> done() {
    std::vector<Status> results;
    for (const RecordingSink::Event& event : one().sink.events)
      if (event.kind == Kind::kWriteDone) {
        EXPECT_EQ(event.work, kWork);
        results.push_back(event.status);
      }
    return results;
  }
  void expect_written(const std::vector<std::size_t>& parts) {
    EXPECT_EQ(arrived(), parts);
    EXPECT_EQ(done(), std::vector<Status>{Status::kOk});
    EXPECT_TRUE(source_->bytes == target_->bytes);
  }
  static fake_verbs::Config with_parts_of(std::uint32_t bytes, fake_verbs::Config fake = {}) {
    for (fake_verbs::DeviceConfig& device : fake.devices) device.ports[0].max_message_bytes = bytes;
    return fake;
  }

  std::unique_ptr<Memory> source_, target_;
};

TEST_F(Transports, MessagesArriveInOrder) {
  make_joined();
  send(0, 300);
  settle();
  EXPECT_TRUE(other().got(300));
  EXPECT_EQ(one().transport.figures().messages_sent, 300u);
  EXPECT_LT(one().link().next() - one().link().retired(), Link::kSignalEvery) << "completions come in time";
}

TEST_F(Transports, BothMaySendAtOnce) {
  make_joined();
  std::uint64_t sent[2] = {};
  for (int round = 0; round < 200; ++round) {
    while (sent[0] < 100 && one().try_send(TransportEnd::message(sent[0])) == Status::kOk) ++sent[0];
    while (sent[1] < 100 && other().try_send(TransportEnd::message(sent[1])) == Status::kOk) ++sent[1];
    one().poll();
    other().poll();
  }
  EXPECT_TRUE(one().got(100));
  EXPECT_TRUE(other().got(100));
}

TEST_F(Transports, CreditStopsTheSenderAndComesBack) {
  make_joined();
  std::uint64_t sent = 0;
  while (one().try_send(TransportEnd::message(sent)) == Status::kOk) ++sent;
  EXPECT_EQ(sent, Link::kFirstWindow - 1) << "the last credit is for a message of credit";
  one().poll();
  EXPECT_EQ(one().try_send(TransportEnd::message(sent)), Status::kAgain) << "the receiver has not polled";
  other().poll();
  EXPECT_EQ(other().transport.figures().credit_messages, 1u);
  one().poll();
  send(sent, sent + 3);
  settle();
  EXPECT_TRUE(other().got(sent + 3));
}

TEST_F(Transports, WhoRanOutOfCreditAsksForMore) {
  make_joined();
  send(0, 3);
  EXPECT_EQ(one().try_send(TransportEnd::message(3)), Status::kAgain);
  settle();
  EXPECT_EQ(other().credit_wanted, 0) << "the messages had left before credit lacked";
  send(3, 5);
  settle();
  EXPECT_EQ(other().credit_wanted, 1) << "the next message asks, once";
}

TEST_F(Transports, WhoAnswersTellsCreditInItsAnswers) {
  make_joined();
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_EQ(one().try_send(TransportEnd::message(n)), Status::kOk);
    other().poll();
    ASSERT_EQ(other().try_send(TransportEnd::message(n)), Status::kOk);
    one().poll();
  }
  EXPECT_EQ(one().transport.figures().credit_messages + other().transport.figures().credit_messages, 0u);
}

TEST_F(Transports, UnblockTellsOnceWhoHasRoomAgain) {
  make_joined();
  EXPECT_EQ(one().transport.unblock(), 0u);
  send(0, 3);
  EXPECT_EQ(one().transport.unblock(), 0u) << "nobody was refused";
  EXPECT_EQ(one().try_send(TransportEnd::message(3)), Status::kAgain);
  EXPECT_EQ(one().transport.unblock(), 0u) << "there is no room yet";
  settle();
  EXPECT_EQ(one().transport.unblock(), 1u);
  EXPECT_EQ(one().transport.unblock(), 0u);
}

TEST_F(Transports, UnblockForgetsAPeerThatIsOver) {
  make_joined();
  send(0, 3);
  EXPECT_EQ(one().try_send(TransportEnd::message(3)), Status::kAgain);
  settle();
  one().on_peer_over(one().peer, Status::kPeerFailed);
  EXPECT_EQ(one().transport.unblock(), 0u);
  EXPECT_FALSE(one().peer.blocked);
}

TEST_F(Transports, ASlotThatWasNotCommittedIsTakenBack) {
  make_joined();
  std::span<std::byte> first, second;
  ASSERT_EQ(one().transport.reserve(one().peer, 100, first), Status::kOk);
  ASSERT_EQ(one().transport.reserve(one().peer, 200, second), Status::kOk);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 1u);
  EXPECT_EQ(second.size(), 200u);
}

TEST_F(Transports, AMessageMayBeShorterThanItsSlot) {
  make_joined();
  std::span<std::byte> slot;
  ASSERT_EQ(one().transport.reserve(one().peer, 400, slot), Status::kOk);
  const std::vector<std::byte> message = TransportEnd::message(0);
  ASSERT_LT(message.size(), 400u);
  std::memcpy(slot.data(), message.data(), message.size());
  one().transport.commit(one().peer, message.size());
  settle();
  EXPECT_TRUE(other().got(1));
}

TEST_F(Transports, WithoutALinkMessagesWaitInOrdinaryMemoryAndALinkIsWanted) {
  make();
  send(0, 3);
  EXPECT_EQ(one().wanted, (std::vector<VerbsLane*>(3, &one().peer.main)));
  EXPECT_EQ(one().transport.buffers().waiting(), 3u);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 0u);
  EXPECT_EQ(join(), 0u) << "nothing of it had been sent";
  settle();
  EXPECT_TRUE(other().got(3));
  EXPECT_EQ(one().transport.buffers().waiting(), 0u);
}

/// A slot that was reserved before the link came up, or went, is not where the next message lies.
TEST_F(Transports, AReservationOutlivesNoChangeOfTheLink) {
  make();
  std::span<std::byte> slot;
  ASSERT_EQ(one().transport.reserve(one().peer, 10, slot), Status::kOk);
  EXPECT_EQ(one().transport.buffers().waiting(), 1u);
  join();
  ASSERT_EQ(one().transport.reserve(one().peer, 10, slot), Status::kOk);
  EXPECT_EQ(one().transport.buffers().waiting(), 0u);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 1u);
  break_link();
  ASSERT_EQ(one().transport.reserve(one().peer, 10, slot), Status::kOk);
  EXPECT_EQ(one().transport.buffers().waiting(), 1u);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 0u);
}

TEST_F(Transports, AParkedPeerThatLacksCreditWantsALink) {
  make_joined();
  send(0, 3);
  break_link();
  one().wanted.clear();
  EXPECT_EQ(one().try_send(TransportEnd::message(3)), Status::kAgain);
  EXPECT_EQ(one().wanted, std::vector<VerbsLane*>{&one().peer.main}) << "the next offer brings credit";
  join();
  EXPECT_EQ(one().try_send(TransportEnd::message(3)), Status::kOk);
  settle();
  EXPECT_TRUE(other().got(4));
}

TEST_F(Transports, FewSendSlotsServe) {
  make_joined({.send_slots = 4});
  send(0, 100);
  settle();
  EXPECT_TRUE(other().got(100));
}

TEST_F(Transports, WhoFoundNoSlotIsUnblockedByOne) {
  make_joined({.send_slots = 4});
  std::vector<std::uint32_t> taken;
  SlotPool& slots = one().transport.slots();
  while (slots.free_count() > 1) taken.push_back(slots.take());
  EXPECT_EQ(one().try_send(TransportEnd::message(0)), Status::kAgain) << "the last slot is for credit";
  EXPECT_EQ(one().transport.unblock(), 0u);
  for (const std::uint32_t slot : taken) slots.give_back(slot);
  EXPECT_EQ(one().transport.unblock(), 1u);
  send(0, 1);
  settle();
  EXPECT_TRUE(other().got(1));
}

TEST_F(Transports, AWaitingMessageThatFindsNoSlotIsSentOnceThereIsOne) {
  make({.send_slots = 4});
  send(0, 2);
  std::vector<std::uint32_t> taken;
  SlotPool& slots = one().transport.slots();
  while (slots.free_count() > 0) taken.push_back(slots.take());
  join();
  settle();
  EXPECT_TRUE(other().got(0));
  for (const std::uint32_t slot : taken) slots.give_back(slot);
  settle();
  EXPECT_TRUE(other().got(2));
}

TEST_F(Transports, TheFirstItemShowsThatAPeersQueuePairIsReady) {
  make_joined();
  other().link().state = LinkState::kBound;
  send(0, 2);
  settle();
  EXPECT_EQ(other().first_items, 1);
  EXPECT_TRUE(other().got(2));
}

TEST_F(Transports, FlushingRetiresWhatIsPosted) {
  make_joined();
  one().all_retired = 0;
  send(0, 1);
  settle();
  EXPECT_EQ(one().link().retired(), 0u) << "nobody asked for its completion";
  one().transport.flush_tail(one().peer.main);
  settle();
  EXPECT_TRUE(one().link().all_retired());
  EXPECT_EQ(one().all_retired, 1);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 0u);
  EXPECT_EQ(fake_verbs::counters().writes, 1u);
  one().transport.flush_tail(one().peer.main);
  EXPECT_EQ(fake_verbs::counters().writes, 1u) << "nothing is owed";
}

TEST_F(Transports, AProbeIsAnsweredByThePeersDevice) {
  make_joined();
  one().transport.probe(one().peer.main);
  EXPECT_TRUE(one().peer.main.probing);
  const std::uint64_t before = one().peer.main.acknowledged;
  one().poll();
  EXPECT_FALSE(one().peer.main.probing);
  EXPECT_EQ(one().peer.main.acknowledged, before + 1);
  EXPECT_EQ(one().transport.figures().probes, 1u);
  fake_verbs::set_silent("fake0", true);
  one().transport.probe(one().peer.main);
  one().poll();
  EXPECT_TRUE(one().peer.main.probing);
}

TEST_F(Transports, ADoorbellThatFailsLosesTheLink) {
  make_joined();
  fake_verbs::fail_call("ibv_post_send", 1, EIO);
  send(0, 1);
  EXPECT_EQ(one().lost, std::vector<std::string>{std::strerror(EIO)});
  break_link();
  EXPECT_EQ(join(), 0u) << "it was not posted";
  settle();
  EXPECT_TRUE(other().got(1));
}

TEST_F(Transports, AQueuePairThatBreaksIsLostOnce) {
  make_joined();
  hold_acknowledgements(true);
  send(0, 3);
  ASSERT_TRUE(fake_verbs::kill_queue_pair("fake0", one().link().queue_pair->qp_num));
  one().poll();
  EXPECT_EQ(one().lost.size(), 1u);
  EXPECT_TRUE(one().over.empty()) << "it says nothing about the peer";
}

TEST_F(Transports, ACompletionQueueThatFailsFailsItsRail) {
  make_joined();
  fake_verbs::fail_call("ibv_poll_cq", 1, EIO);
  one().poll();
  EXPECT_EQ(one().failed_rails, std::vector<Rail*>{one().rails[0].get()});
}

TEST_F(Transports, ARailThatTakesNoReceivesFails) {
  make_joined();
  send(0, 1);
  fake_verbs::fail_call("ibv_post_srq_recv", 1, EIO);
  other().poll();
  EXPECT_EQ(other().failed_rails, std::vector<Rail*>{other().rails[0].get()});
}

TEST_F(Transports, WhatComesThroughAnAbandonedQueuePairDoesNotCount) {
  make_joined();
  send(0, 2);
  Link& link = other().link();
  other().rails[0]->stop(std::move(link.queue_pair), other().peer.main, Rail::End::kFinished);
  link.state = LinkState::kNone;
  other().poll();
  EXPECT_TRUE(other().got(0));
  EXPECT_EQ(link.received(), 0u);
}

TEST_F(Transports, ABudgetLeavesTheRestToTheNextPoll) {
  make_joined();
  send(0, 3);
  EXPECT_EQ(other().poll(2), 2u);
  EXPECT_FALSE(other().emptied);
  EXPECT_EQ(other().poll(2), 1u);
  EXPECT_TRUE(other().emptied);
}

TEST_F(Transports, NoticesAreTold) {
  make_joined();
  ASSERT_TRUE(one().transport.push_notice(one().peer.main, SlotHeader::kPark));
  other().poll();
  EXPECT_EQ(other().parks, 1);
  EXPECT_TRUE(other().over.empty());
  make_joined();
  ASSERT_TRUE(one().transport.push_notice(one().peer.main, SlotHeader::kBye));
  other().poll();
  EXPECT_EQ(other().over, std::vector<Status>{Status::kPeerFailed});
}

TEST_F(Transports, ANoticeThatFindsNoSlotIsNotSent) {
  make_joined({.send_slots = 4});
  while (one().transport.slots().free_count() > 0) static_cast<void>(one().transport.slots().take());
  EXPECT_FALSE(one().transport.push_notice(one().peer.main, SlotHeader::kPark));
  EXPECT_EQ(one().link().next(), 0u);
}

TEST_F(Transports, TheLastNoticeNeedsNoCredit) {
  make_joined();
  for (int i = 0; i < 4; ++i) post_raw(one().peer.main, raw(SlotHeader::kMessage, 10));
  post_raw(one().peer.main, raw(SlotHeader::kPark, 0));
  other().poll();
  EXPECT_EQ(other().sink.count(Kind::kMessage), 4u);
  EXPECT_EQ(other().parks, 1);
  EXPECT_TRUE(other().over.empty());
}

TEST_F(Transports, ASlotThatDoesNotFollowTheProtocolEndsThePeer) {
  const std::vector<std::byte> slots[] = {
      {},                                              // Without a header,
      std::vector<std::byte>(sizeof(SlotHeader) - 1),  // or with a part of one.
      raw(0, 10),
      raw(SlotHeader::kBye + 1, 10),
      raw(255, 0),
      raw(SlotHeader::kMessage, 0),
      raw(SlotHeader::kCreditOnly, 1),
      raw(SlotHeader::kPark, 1),
      raw(SlotHeader::kBye, 1)};
  for (const std::vector<std::byte>& slot : slots) {
    make_joined();
    post_raw(one().peer.main, raw(SlotHeader::kMessage, 10));
    post_raw(one().peer.main, slot);
    post_raw(one().peer.main, raw(SlotHeader::kMessage, 10));
    other().poll();
    EXPECT_EQ(other().over, std::vector<Status>{Status::kProtocol}) << slot.size();
    EXPECT_EQ(other().sink.count(Kind::kMessage), 1u) << "what came before counts, and nothing else";
  }
}

TEST_F(Transports, WhoSendsMoreThanItsCreditIsOver) {
  make_joined();
  for (std::uint32_t i = 0; i <= Link::kFirstWindow; ++i)
    post_raw(one().peer.main, raw(SlotHeader::kMessage, 10));
  other().poll();
  EXPECT_EQ(other().sink.count(Kind::kMessage), Link::kFirstWindow);
  EXPECT_EQ(other().over, std::vector<Status>{Status::kProtocol});
}

TEST_F(Transports, WhoSendsAfterItHasParkedIsOver) {
  make_joined();
  post_raw(one().peer.main, raw(SlotHeader::kPark, 0));
  post_raw(one().peer.main, raw(SlotHeader::kMessage, 10));
  other().poll();
  EXPECT_EQ(other().over, std::vector<Status>{Status::kProtocol});
  EXPECT_EQ(other().sink.count(Kind::kMessage), 0u);
}

TEST_F(Transports, AMessageOnTheSecondLaneEndsThePeer) {
  make({}, fake_verbs::two_rails());
  join(0);
  join(1);
  post_raw(*one().peer.second, raw(SlotHeader::kMessage, 10));
  other().poll();
  EXPECT_EQ(other().over, std::vector<Status>{Status::kProtocol});
}

TEST_F(Transports, WhatIsNotReceivedIsSentAgainOverTheNextLink) {
  make_joined();
  send(0, 2);
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  send(2, 3);
  other().poll();
  ASSERT_TRUE(other().got(2));
  break_link();
  EXPECT_EQ(one().transport.buffers().slots_taken(), 0u);
  EXPECT_EQ(one().transport.buffers().waiting(), 3u);
  EXPECT_EQ(join(), 1u);
  send(3, 20);
  settle();
  EXPECT_TRUE(other().got(20));
}

TEST_F(Transports, WhatWasReceivedIsNotSentAgainThoughItWasNeverAcknowledged) {
  make_joined();
  hold_acknowledgements(true);
  send(0, 3);
  other().poll();
  ASSERT_TRUE(other().got(3));
  hold_acknowledgements(false);
  break_link();
  EXPECT_EQ(one().link().retired(), 0u);
  EXPECT_EQ(join(), 0u);
  EXPECT_TRUE(one().link().all_retired());
  send(3, 10);
  settle();
  EXPECT_TRUE(other().got(10));
}

TEST_F(Transports, WhatWasInTheCompletionQueueWhenTheLinkEndedIsDelivered) {
  make_joined();
  send(0, 3);
  break_link();
  EXPECT_TRUE(other().got(3));
  EXPECT_EQ(join(), 0u);
  settle();
  EXPECT_TRUE(other().got(3));
}

TEST_F(Transports, OfWhatAPeerSaysItReceivedNothingIsSentAgain) {
  make_joined();
  send(0, 3);
  settle();
  break_link();
  EXPECT_EQ(join(0, 1), 2u);
  EXPECT_EQ(one().link().retired(), 1u);
}

TEST_F(Transports, APeerThatFailedHasStillFailedAfterAResumption) {
  make_joined();
  hold_acknowledgements(true);
  send(0, 1);
  other().poll();
  break_link();
  one().peer.failed = true;
  join();
  EXPECT_TRUE(one().peer.failed) << "what an offer says is no news from the new link";
  hold_acknowledgements(false);
  send(1, 2);
  one().transport.flush_tail(one().peer.main);
  settle();
  EXPECT_FALSE(one().peer.failed);
}

TEST_F(Transports, AParkThatALinkLostParksNotTheNextOne) {
  make_joined();
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  ASSERT_TRUE(one().transport.push_notice(one().peer.main, SlotHeader::kPark));
  break_link();
  EXPECT_EQ(join(), 1u);
  settle();
  EXPECT_EQ(other().link().received(), 1u);
  EXPECT_EQ(other().parks, 0);
  EXPECT_TRUE(other().over.empty());
}

TEST_F(Transports, AMessageThatIsHeldHoldsBackWhatIsBehindIt) {
  make_joined();
  other().sink.holds = true;
  send(0, 3);
  other().poll();
  EXPECT_TRUE(other().got(1));
  EXPECT_TRUE(other().transport.holds_message());
  EXPECT_FALSE(other().emptied);
  for (std::size_t n = 0; n < 3; ++n) {
    const std::vector<std::byte> wanted = TransportEnd::message(n);
    EXPECT_TRUE(std::ranges::equal(other().sink.held, wanted)) << "valid until the next poll";
    if (n == 2) break;
    other().poll();
    EXPECT_TRUE(other().got(n + 2));
  }
  other().poll();
  EXPECT_FALSE(other().transport.holds_message());
  EXPECT_TRUE(other().emptied);
}

TEST_F(Transports, SlotsOfHeldMessagesAreUsedAgain) {
  make_joined();
  other().sink.holds = true;
  send(0, 500);
  settle();
  EXPECT_TRUE(other().got(500));
  EXPECT_EQ(fake_verbs::counters().receiver_not_ready, 0u);
}

TEST_F(TransportWrites, AHeldMessageHoldsBackAWriteButNoCompletionOfASend) {
  make_joined();
  make_memory(100);
  Memory mine(other(), 100, Access::kRead), theirs(one(), 100, Access::kWrite);
  other().sink.holds = true;
  send(0, 1);
  ASSERT_EQ(write(), Status::kOk);
  ASSERT_EQ(
      write_from(other(), mine.bytes.data(), 100, mine.region, theirs.remote(), kImmediate, kWork, false),
      Status::kOk);
  other().poll();
  EXPECT_TRUE(other().got(1));
  EXPECT_EQ(arrived().size(), 0u);
  other().poll();
  EXPECT_EQ(arrived().size(), 1u);
  EXPECT_EQ(other().sink.count(Kind::kWriteDone), 1u);
}

TEST_F(TransportWrites, AWriteArrivesWithItsImmediate) {
  make_joined();
  make_memory(5000);
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_TRUE(done().empty()) << "not before a poll";
  settle();
  expect_written({5000});
  EXPECT_EQ(one().transport.figures().writes_posted, 1u);
}

TEST_F(TransportWrites, AWriteOfNothingArrivesToo) {
  make_joined();
  make_memory(1);
  ASSERT_EQ(write_from(one(), source_->bytes.data(), 0, source_->region, target_->remote(), kImmediate, kWork,
                       false),
            Status::kOk);
  settle();
  EXPECT_EQ(arrived(), std::vector<std::size_t>{0});
  EXPECT_EQ(done(), std::vector<Status>{Status::kOk});
}

TEST_F(TransportWrites, ALongWriteGoesInPartsAsLongAsThePortTakes) {
  make_joined({}, with_parts_of(8192));
  make_memory(20'000);
  ASSERT_EQ(write(), Status::kOk);
  settle();
  expect_written({8192, 8192, 20'000 - 2 * 8192});
}

TEST_F(TransportWrites, PartsThatFindNoCreditWaitAndWithThemEverythingElse) {
  make_joined({}, with_parts_of(8192));
  make_memory(10 * 8192);
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(one().link().next(), Link::kFirstWindow - 1);
  EXPECT_EQ(write(), Status::kAgain);
  EXPECT_EQ(one().try_send(TransportEnd::message(0)), Status::kAgain);
  settle();
  expect_written(std::vector<std::size_t>(10, 8192));
  EXPECT_EQ(one().transport.unblock(), 1u);
}

TEST_F(TransportWrites, MoreWritesThanThereIsRoomForWait) {
  make_joined();
  make_memory(64);
  std::size_t posted = 0;
  while (write() == Status::kOk) ++posted;
  EXPECT_EQ(posted, Link::kFirstWindow - 1);
  settle();
  EXPECT_EQ(done().size(), posted);
  EXPECT_EQ(write(), Status::kOk);
  settle();
}

TEST_F(TransportWrites, AWriteWithoutALinkWaitsForOne) {
  make();
  make_memory(5000);
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_FALSE(one().wanted.empty());
  join();
  settle();
  expect_written({5000});
}

TEST_F(TransportWrites, AStripedWriteGoesOverBothLanes) {
  make({}, fake_verbs::two_rails());
  join(0);
  join(1);
  make_memory(100'000);
  ASSERT_EQ(write(true), Status::kOk);
  EXPECT_EQ(one().peer.main.link.next(), 1u);
  EXPECT_EQ(one().peer.second->link.next(), 1u);
  settle();
  constexpr std::size_t kFirst = 53'248;  // Half, up to a multiple of 4096.
  expect_written({kFirst, 100'000 - kFirst});
  EXPECT_TRUE(one().peer.second->link.all_retired()) << "the last part of each lane asks for its completion";
}

TEST_F(TransportWrites, AStripedWriteIsDoneWhenBothLanesHaveTheirAcknowledgement) {
  make({}, fake_verbs::two_rails());
  join(0);
  join(1);
  make_memory(100'000);
  fake_verbs::drop_next(1, fake_verbs::Loss::kAcknowledge);  // Of the main lane's part.
  ASSERT_EQ(write(true), Status::kOk);
  settle();
  EXPECT_EQ(arrived().size(), 2u);
  EXPECT_TRUE(one().peer.second->link.all_retired());
  EXPECT_TRUE(done().empty());
  break_link();
  join(0);
  settle();
  EXPECT_EQ(done(), std::vector<Status>{Status::kOk});
  EXPECT_EQ(arrived().size(), 2u);
}

TEST_F(TransportWrites, WithoutTheSecondLaneTheMainOneTakesAllParts) {
  make({}, fake_verbs::two_rails());
  join(0);
  make_memory(100'000);
  ASSERT_EQ(write(true), Status::kOk);
  EXPECT_EQ(one().peer.main.link.next(), 2u);
  settle();
  EXPECT_EQ(arrived().size(), 2u);
  EXPECT_EQ(done(), std::vector<Status>{Status::kOk});
}

TEST_F(TransportWrites, PartsThatWereNotReceivedAreSentAgain) {
  make_joined({}, with_parts_of(8192));
  make_memory(16'000);
  send(0, 1);
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  ASSERT_EQ(write(), Status::kOk);
  other().poll();
  break_link();
  EXPECT_EQ(join(), 2u);
  settle();
  EXPECT_TRUE(other().got(1));
  expect_written({8192, 16'000 - 8192});
}

TEST_F(TransportWrites, MemoryThatThePeerTookBackEndsIt) {
  make_joined();
  make_memory(100);
  const RemoteMemory gone = target_->remote();
  target_->deregister();
  ASSERT_EQ(write_from(one(), source_->bytes.data(), 100, source_->region, gone, kImmediate, kWork, false),
            Status::kOk);
  one().poll();
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(one().lost.size(), 1u);
  ASSERT_EQ(one().lines.size(), 1u);
  EXPECT_EQ(one().lines[0].find("verbs: peer 1 refused what was sent ("), 0u) << one().lines[0];
  other().poll();
  EXPECT_EQ(other().lost.size(), 1u) << "its own queue pair broke, too";
  EXPECT_TRUE(other().over.empty());
}

TEST_F(TransportWrites, MemoryForReadingIsNotWritten) {
  make_joined();
  source_ = std::make_unique<Memory>(one(), 100, Access::kRead);
  target_ = std::make_unique<Memory>(other(), 100, Access::kRead);
  Pattern(5).fill(source_->bytes);
  ASSERT_EQ(write(), Status::kOk);
  one().poll();
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(target_->bytes, std::vector<std::byte>(100));
}

TEST_F(TransportWrites, ThePeersEndFailsWritesAndGivesEverythingBack) {
  make_joined({}, with_parts_of(8192));
  make_memory(10 * 8192);
  hold_acknowledgements(true);
  send(0, 1);
  std::span<std::byte> reserved;
  ASSERT_EQ(one().transport.reserve(one().peer, 10, reserved), Status::kOk);
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 2u);
  one().ends_peer = true;
  one().on_peer_over(one().peer, Status::kProtocol);
  one().stop(one().peer.main);
  for (int i = 0; i < 3; ++i) one().poll();
  EXPECT_EQ(done(), std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(one().sink.count(Kind::kPeerDown), 1u);
  EXPECT_EQ(one().sink.events.back().kind, Kind::kPeerDown) << "after the write";
  EXPECT_EQ(one().sink.events.back().status, Status::kProtocol);
  EXPECT_EQ(one().transport.buffers().slots_taken(), 0u);
  EXPECT_EQ(one().transport.buffers().waiting(), 0u);
  std::span<std::byte> slot;
  EXPECT_EQ(one().transport.reserve(one().peer, 10, slot), Status::kPeerFailed);
  EXPECT_EQ(write(), Status::kPeerFailed);
  hold_acknowledgements(false);
}

TEST_F(TransportWrites, ThePeersEndTakesBackWhatWaitedForALink) {
  make();
  make_memory(100);
  send(0, 2);
  ASSERT_EQ(write(), Status::kOk);
  one().ends_peer = true;
  one().on_peer_over(one().peer, Status::kPeerFailed);
  EXPECT_EQ(one().poll(), 2u) << "the write and the end";
  EXPECT_EQ(done(), std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(one().transport.buffers().waiting(), 0u);
}

}  // namespace
}  // namespace ch3_offload
