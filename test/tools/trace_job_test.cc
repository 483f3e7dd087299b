#include "trace_job.h"

#include <gtest/gtest.h>

#include "tools/trace_sample.h"
#include "trace_facts.h"
#include "trace_show.h"
#include "trace_summary.h"

namespace ch3_offload {
namespace {

using enum TraceEvent;

/// Rank 0's and rank 1's view of one short message, 0:1:1, that takes 700 ns.
TraceSample sender() {
  TraceSample sample(0, 2);
  sample.add(1000, kSendPosted, 1, 1, 64).add(1200, kSendShort, 1, 1, 64);
  return sample;
}
TraceSample receiver() {
  TraceSample sample(1, 2);
  sample.add(1500, kMessageArrived, 0, 1, 64).add(1600, kMatched, 0, 1, 7).add(1700, kReceiveDone, 0, 1, 0);
  return sample;
}

TraceJob merge(const std::vector<TraceSample>& samples) {
  std::vector<TraceFile> files;
  for (const TraceSample& sample : samples) files.push_back(sample.file());
  auto job = TraceJob::merge(files);
  EXPECT_TRUE(job.ok()) << job.error().message;
  return std::move(job.value());
}

std::string refusal(const std::vector<TraceSample>& samples) {
  std::vector<TraceFile> files;
  for (const TraceSample& sample : samples) files.push_back(sample.file());
  auto job = TraceJob::merge(files);
  return job.ok() ? "none" : job.error().message;
}

TEST(TraceJob, BringsBothSidesOfAMessageTogether) {
  const TraceJob job = merge({receiver(), sender()});
  ASSERT_EQ(job.messages().size(), 1u);
  const Message& message = job.messages()[0];
  EXPECT_EQ(to_string(message.name), "0:1:1");
  ASSERT_EQ(message.sent.size(), 2u);
  ASSERT_EQ(message.received.size(), 3u);
  EXPECT_EQ(message.sent[0].time_ns, 0);  // The earliest event is time 0.
  EXPECT_EQ(message.received[2].time_ns, 700);
  EXPECT_EQ(job.find({0, 1, 1}), &message);
  EXPECT_EQ(job.find({0, 1, 2}), nullptr);
  EXPECT_EQ(job.find_rank(1)->rank, 1u);
  EXPECT_EQ(job.find_rank(2), nullptr);
  EXPECT_TRUE(job.notes().empty());
}

TEST(TraceJob, EventsOfNoMessageStayWithTheirRank) {
  const TraceJob job = merge({sender().add(1300, kProbe, 0).add(1400, kPeerFailed, 1), receiver(),
                              TraceSample(1, 2).by_client().add(1300, kSleep, 1).add(1400, kWake, 1)});
  EXPECT_EQ(job.messages().size(), 1u);
  ASSERT_EQ(job.ranks().size(), 2u);
  ASSERT_EQ(job.ranks()[0].engine.events.size(), 2u);
  EXPECT_EQ(job.ranks()[0].engine.events[0].event, kProbe);
  ASSERT_EQ(job.ranks()[1].client.events.size(), 2u);
  EXPECT_EQ(job.ranks()[1].client.events[0].event, kSleep);
}

/// What the clients gave and took of the message above: the send is over at once, the receive waits.
TraceSample sending_client() {
  TraceSample sample(0, 2);
  sample.by_client().add(900, kSendGiven, 1, 350, 64, 0xA, 0);
  return sample;
}
TraceSample receiving_client() {
  TraceSample sample(1, 2);
  sample.by_client().add(500, kReceiveGiven, 1, 20, 7, 0xB, 1).add(1800, kReceiveTaken, 1, 0, 0, 0xB);
  return sample;
}
TraceSample joined_sender() {
  TraceSample sample(0, 2);
  sample.add(1000, kSendPosted, 1, 1, 64, 0xA).add(1200, kSendShort, 1, 1, 64);
  return sample;
}
TraceSample joined_receiver() {
  TraceSample sample(1, 2);
  sample.add(510, kReceivePosted, 1, 0, 7, 0xB)
      .add(1500, kMessageArrived, 0, 1, 64)
      .add(1600, kMatched, 0, 1, 7, 0xB)
      .add(1700, kReceiveDone, 0, 1, 0, 0xB);
  return sample;
}

TEST(TraceJob, JoinsCommandsWithWhatTheEngineMadeOfThem) {
  const TraceJob job = merge({joined_sender(), sending_client(), joined_receiver(), receiving_client()});
  EXPECT_TRUE(job.notes().empty());
  ASSERT_EQ(job.commands().size(), 2u);
  const Command& send = job.commands()[0];
  EXPECT_EQ(send.returned_ns - send.given_ns, 350);
  EXPECT_EQ(send.command_wait_ns(), 100);
  EXPECT_FALSE(send.event_wait_ns().has_value());
  EXPECT_FALSE(send.is_unfinished());
  const Command& receive = job.commands()[1];
  EXPECT_EQ(receive.command_wait_ns(), 10);
  EXPECT_EQ(receive.event_wait_ns(), 100);
  EXPECT_FALSE(receive.is_unfinished());
  const Message& message = job.messages()[0];
  EXPECT_EQ(message.send, &send);
  EXPECT_EQ(message.receive, &receive);
}

TEST(TraceJob, ACookieThatComesAgainIsAnotherCommand) {
  TraceSample client(0, 2);
  TraceSample engine(0, 2);
  client.by_client();
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t start = 1000 * (i + 1);
    client.add(start, kSendGiven, 1, 10, 8, 0xA, 1).add(start + 500, kSendTaken, 0, 0, 0, 0xA);
    engine.add(start + i, kSendPosted, 1, i + 1, 8, 0xA).add(start + 400, kSendDone, 1, i + 1, 0, 0xA);
  }
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(job.commands()[i].command_wait_ns(), static_cast<std::int64_t>(i));
    EXPECT_EQ(job.commands()[i].event_wait_ns(), 100);
    EXPECT_EQ(job.commands()[i].message, (MessageName{0, 1, i + 1}));
  }
}

TEST(TraceJob, EventsThatWereOverwrittenAreNotJoinedWithOthers) {
  TraceSample client(0, 2);
  client.by_client();
  for (std::uint64_t i = 0; i < 3; ++i) {
    client.add(1000 * i, kSendGiven, 1, 10, 8, 0xA, 1).add(1000 * i + 500, kSendTaken, 0, 0, 0, 0xA);
  }
  TraceSample engine(0, 2);  // Of the third command only.
  engine.lose(2).add(1700, kProbe, 0).add(2100, kSendPosted, 1, 3, 8, 0xA).add(2400, kSendDone, 1, 3, 0, 0xA);
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 3u);
  EXPECT_FALSE(job.commands()[0].command_wait_ns().has_value());
  EXPECT_FALSE(job.commands()[1].command_wait_ns().has_value());
  EXPECT_EQ(job.commands()[2].command_wait_ns(), 100);
  for (const Command& command : job.commands()) EXPECT_FALSE(command.is_unfinished());
}

TEST(TraceJob, WhatIsCancelledHasNoEventToTake) {
  TraceSample client(0, 2);
  client.by_client()
      .add(100, kSendGiven, 1, 10, 8, 0xA, 1)
      .add(200, kCancelGiven, 1, 10, 0, 0xA, 1)
      .add(300, kCancelTaken, 0, 0, 1, 0xA)
      .add(400, kReceiveGiven, 0, 10, 7, 0xB, 1)
      .add(500, kSendGiven, 1, 10, 8, 0xC, 1);
  TraceSample engine(0, 2);
  engine.add(101, kSendPosted, 1, 1, 8, 0xA)
      .add(201, kCancelRequested, 1, 0, 0, 0xA)
      .add(250, kCancelDecided, 1, 0, 1, 0xA)
      .add(401, kReceivePosted, 0, 0, 7, 0xB)
      .add(450, kReceiveCancelled, 0, 0, 0, 0xB)
      .add(501, kSendPosted, 1, 2, 8, 0xC);
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 4u);
  EXPECT_TRUE(job.commands()[0].is_cancelled);
  EXPECT_EQ(job.commands()[1].event_wait_ns(), 50);
  EXPECT_TRUE(job.commands()[2].is_cancelled);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(job.commands()[static_cast<std::size_t>(i)].is_unfinished()) << i;
  EXPECT_TRUE(job.commands()[3].is_unfinished());
}

/// The message above through rings. The engine's cookies are a copy's number and a name.
std::vector<TraceSample> through_rings() {
  TraceSample sending(0, 2), receiving(1, 2), sender(0, 2), receiver(1, 2);
  sending.by_client().add(900, kSendGiven, 1, 350, 64, 0xA, 0).add(930, kCommandPublished, 0, 0, 128, 0xA);
  sender.add(980, kCommandTaken, 0, 0, 128, 1)
      .add(1000, kSendPosted, 1, 1, 64, 1)
      .add(1200, kSendShort, 1, 1, 64);
  receiving.by_client()
      .add(500, kReceiveGiven, 1, 20, 7, 0xB, 1)
      .add(510, kCommandPublished, 1, 0, 0, 0xB)
      .add(1900, kReceiveTaken, 1, 0, 0, 0xB);
  receiver.add(520, kCommandTaken, 1, 0, 0, 0x1'0000'0001)
      .add(530, kReceivePosted, 1, 0, 7, 0x1'0000'0001)
      .add(1500, kMessageArrived, 0, 1, 64)
      .add(1600, kMatched, 0, 1, 7, 0x1'0000'0001)
      .add(1700, kReceiveDone, 0, 1, 0, 0x1'0000'0001)
      .add(1740, kEventPublished, 1, 0, 1, 0x1'0000'0001);
  return {sender, sending, receiver, receiving};
}

TEST(TraceJob, JoinsCommandsThroughRingsByTheirPosition) {
  const TraceJob job = merge(through_rings());
  EXPECT_TRUE(job.notes().empty());
  ASSERT_EQ(job.commands().size(), 2u);
  const Command& send = job.commands()[0];
  const Command& receive = job.commands()[1];
  ASSERT_TRUE(send.published && send.handed_on && receive.handed_on && receive.told);
  EXPECT_EQ(send.handed_on->time_ns - send.published->time_ns, 50);
  EXPECT_EQ(send.command_wait_ns(), 100);
  EXPECT_EQ(receive.event_wait_ns(), 200);
  EXPECT_EQ(receive.taken->time_ns - receive.told->time_ns, 160);
  EXPECT_FALSE(receive.is_unfinished());
  EXPECT_EQ(job.messages()[0].send, &send);
  EXPECT_EQ(job.messages()[0].receive, &receive);
}

TEST(TraceJob, ThroughRingsBothSidesUseTheirCookiesAgain) {
  // Three sends that are over with their calls. The client gives all before the engine takes the first up.
  TraceSample client(0, 2), engine(0, 2);
  client.by_client();
  for (std::uint64_t i = 0; i < 3; ++i)
    client.add(1000 + 10 * i, kSendGiven, 1, 5, 8, 0xA, 0)
        .add(1002 + 10 * i, kCommandPublished, 0, 0, 64 * i, 0xA);
  for (std::uint64_t i = 0; i < 3; ++i)
    engine.add(2000 + 100 * i, kCommandTaken, 0, 0, 64 * i, 1)
        .add(2001 + 100 * i, kSendPosted, 1, i + 1, 8, 1);
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(job.commands()[i].message, (MessageName{0, 1, i + 1}));
    EXPECT_EQ(job.commands()[i].command_wait_ns(), static_cast<std::int64_t>(1001 + 90 * i));
  }
}

TEST(TraceJob, ThroughRingsWhatIsLostIsNotJoined) {
  TraceSample client(0, 2), engine(0, 2);
  client.by_client();
  for (std::uint64_t i = 0; i < 2; ++i)
    client.add(1000 + 10 * i, kSendGiven, 1, 5, 8, 0xA, 0)
        .add(1002 + 10 * i, kCommandPublished, 0, 0, 64 * i, 0xA);
  // The first command's CommandTaken was overwritten.
  engine.lose(1).add(1006, kSendPosted, 1, 1, 8, 1);
  engine.add(1012, kCommandTaken, 0, 0, 64, 1).add(1014, kSendPosted, 1, 2, 8, 1);
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 2u);
  EXPECT_FALSE(job.commands()[0].message.has_value());
  EXPECT_EQ(job.commands()[1].message, (MessageName{0, 1, 2}));
}

TEST(TraceJob, ThroughRingsACancelledSendHasNoEventToTake) {
  TraceSample client(0, 2), engine(0, 2);
  client.by_client()
      .add(100, kSendGiven, 1, 10, 8, 0xA, 1)
      .add(105, kCommandPublished, 0, 0, 0, 0xA)
      .add(200, kCancelGiven, 1, 10, 0, 0xA, 1)
      .add(205, kCommandPublished, 0, 0, 64, 0xA)
      .add(300, kCancelTaken, 0, 0, 1, 0xA);
  engine.add(106, kCommandTaken, 0, 0, 0, 0x1'0000'0001)
      .add(107, kSendPosted, 1, 1, 8, 0x1'0000'0001)
      .add(206, kCommandTaken, 0, 0, 64, 0x1'0000'0002)
      .add(207, kCancelRequested, 1, 0, 0, 0x1'0000'0002)
      .add(250, kCancelDecided, 1, 0, 1, 0x1'0000'0002);
  const TraceJob job = merge({client, engine});
  ASSERT_EQ(job.commands().size(), 2u);
  EXPECT_TRUE(job.commands()[0].is_cancelled);
  EXPECT_FALSE(job.commands()[0].is_unfinished());
  EXPECT_EQ(job.commands()[1].event_wait_ns(), 50);
}

TEST(TraceJob, OneSideShowsWhatItHas) {
  const TraceJob client = merge({sending_client()});
  EXPECT_EQ(client.messages().size(), 0u);
  ASSERT_EQ(client.commands().size(), 1u);
  EXPECT_FALSE(client.commands()[0].command_wait_ns().has_value());
  ASSERT_EQ(client.notes().size(), 2u);
  EXPECT_EQ(client.notes()[0], "no trace of 2 of 2 ranks (0-1): their side of messages is missing");
  EXPECT_EQ(client.notes()[1], "no trace of the client of 1 of 2 ranks (1): their commands are missing");
  const TraceJob engines = merge({joined_sender(), joined_receiver()});
  EXPECT_TRUE(engines.commands().empty());
  EXPECT_TRUE(engines.notes().empty());
  EXPECT_EQ(render_summary(engines, 0).find("commands"), std::string::npos);
}

TEST(TraceJob, ASelfMessageHasBothSides) {
  const TraceJob job = merge({TraceSample(0, 1)
                                  .add(1, kSendPosted, 0, 1, 8)
                                  .add(2, kSendShort, 0, 1, 8)
                                  .add(3, kMessageArrived, 0, 1, 8)});
  ASSERT_EQ(job.messages().size(), 1u);
  EXPECT_EQ(job.messages()[0].sent.size(), 2u);
  EXPECT_EQ(job.messages()[0].received.size(), 1u);
}

TEST(TraceJob, MessagesCorrectTheClocksOfNodes) {
  // Rank 1's node is 1 ms behind by its own real-time clock: messages would arrive before they left.
  TraceSample behind(1, 2, 2, 5'000'000);
  behind.header().at_start.realtime_ns -= 1'000'000;
  behind.header().at_write.realtime_ns -= 1'000'000;
  behind.add(1500, kMessageArrived, 0, 1, 64).add(1600, kAckSent, 0, 1);
  const TraceJob job = merge({sender().add(1900, kAckArrived, 1, 1), behind});
  const Message& message = job.messages()[0];
  EXPECT_EQ(message.received[0].time_ns - message.sent[1].time_ns, 300);
  ASSERT_EQ(job.notes().size(), 1u);
  EXPECT_EQ(job.notes()[0], "the clock of node node2 was moved by +1000.000 us to agree with the messages");
}

TEST(TraceJob, NamesTheClocksThatDisagree) {
  TraceSample early(1, 2);
  early.add(1100, kMessageArrived, 0, 1, 64);  // 100 ns before it leaves, on the same clock.
  const TraceJob within = merge({sender(), early});
  ASSERT_EQ(within.notes().size(), 1u);
  EXPECT_EQ(within.notes()[0],
            "1 message within a node seems to arrive before leaving: its processors' clocks disagree");
  // To another node and back in less than no time: no shift mends that.
  TraceSample elsewhere(1, 2, 2);
  elsewhere.add(1100, kMessageArrived, 0, 1, 64)
      .add(1100, kMessageArrived, 0, 2, 64)
      .add(1300, kAckSent, 0, 1);
  const TraceJob between =
      merge({sender().add(1200, kSendShort, 1, 2, 64).add(1250, kAckArrived, 1, 1), elsewhere});
  ASSERT_EQ(between.notes().size(), 2u);
  EXPECT_EQ(between.notes()[1],
            "2 messages between nodes seem to arrive before leaving: the nodes' clocks disagree");
}

TEST(TraceJob, SaysWhichRanksAreMissing) {
  TraceSample one(1, 9);
  TraceSample five(5, 9);
  const TraceJob job = merge({one, five});
  ASSERT_EQ(job.notes().size(), 1u);
  EXPECT_EQ(job.notes()[0], "no trace of 7 of 9 ranks (0, 2-4, 6-8): their side of messages is missing");
}

TEST(TraceJob, SaysWhatWasOverwritten) {
  const TraceJob job = merge({sender().lose(12), receiver()});
  ASSERT_EQ(job.notes().size(), 1u);
  EXPECT_TRUE(job.notes()[0].starts_with("rank 0: its oldest 12 events were overwritten")) << job.notes()[0];
}

TEST(TraceJob, RefusesWhatIsNotOneJob) {
  EXPECT_EQ(refusal({}), "no trace files");
  EXPECT_EQ(refusal({TraceSample(0, 2), TraceSample(1, 3)}),
            "sample.0.ch3trace is of a job of 2 processes, sample.1.ch3trace of one of 3");
  EXPECT_EQ(refusal({sender(), sender()}), "sample.0.ch3trace and sample.0.ch3trace are both of rank 0");
  EXPECT_EQ(refusal({sending_client(), sending_client()}),
            "sample.0.client.ch3trace and sample.0.client.ch3trace are both of rank 0's client");
  TraceSample old(1, 2);
  old.header().at_start.realtime_ns = old.header().at_write.realtime_ns = 0;
  EXPECT_NE(refusal({sender(), old}).find("years apart"), std::string::npos);
  TraceSample simulated(1, 2);
  simulated.header().clock = static_cast<std::uint32_t>(TraceClock::kSimulated);
  EXPECT_NE(refusal({sender(), simulated}).find("simulated"), std::string::npos);
}

MessageFacts facts(const std::vector<TraceSample>& samples) {
  const TraceJob job = merge(samples);
  return facts_of(job.messages()[0], job);
}

TEST(MessageFacts, OfAWholeMessage) {
  const MessageFacts f = facts({sender(), receiver()});
  EXPECT_EQ(f.protocol, "short");
  EXPECT_EQ(f.bytes, 64u);
  EXPECT_EQ(f.latency_ns, 700);
  EXPECT_EQ(f.match_bits, 7u);
  EXPECT_TRUE(f.arrived);
  EXPECT_FALSE(f.unexpected);
  EXPECT_FALSE(f.failed);
  EXPECT_EQ(f.gap, "");
}

TEST(MessageFacts, ProtocolComesFromTheEvents) {
  const auto protocol = [](std::initializer_list<TraceEvent> events) {
    TraceSample sample(0, 2);
    sample.add(1, kSendPosted, 1, 1, 8);
    for (const TraceEvent event : events) sample.add(2, event, 1, 1, 8);
    return std::string(facts({sample}).protocol);
  };
  EXPECT_EQ(protocol({kSendEager, kSendDone}), "eager");
  EXPECT_EQ(protocol({kRtsSent, kCtsArrived}), "rendezvous");
  EXPECT_EQ(protocol({kRtsSent, kCtsArrived, kWritePosted, kWriteDone}), "rendezvous write");
  EXPECT_EQ(protocol({kRtsSent, kCtsArrived, kWriteDone}), "rendezvous write");
  EXPECT_EQ(protocol({kRtsSent, kCtsArrived, kWritePosted, kWriteDone, kBounceStarted}), "rendezvous bounce");
  EXPECT_EQ(protocol({kOptimisticSent, kSendBuffered, kCtsArrived, kBounceStarted}), "optimistic");
  EXPECT_EQ(protocol({kSendQueued}), "unknown");
}

TEST(MessageFacts, GapsAreNamed) {
  EXPECT_EQ(facts({sender()}).gap, "no trace of rank 1");
  EXPECT_EQ(facts({receiver()}).gap, "no trace of rank 0");
  EXPECT_EQ(facts({sender(), TraceSample(1, 2)}).gap, "not arrived at rank 1");
  EXPECT_EQ(facts({sender(), TraceSample(1, 2).lose(5)}).gap, "overwritten on rank 1");
  EXPECT_EQ(facts({TraceSample(0, 2).lose(1).add(1200, kSendShort, 1, 1, 64), receiver()}).gap,
            "overwritten on rank 0");
  EXPECT_EQ(
      facts({TraceSample(0, 2).add(1, kSendPosted, 1, 1, 8).add(2, kSendQueued, 1, 1, 8), TraceSample(1, 2)})
          .gap,
      "not sent");
  EXPECT_EQ(facts({sender(), TraceSample(1, 2).add(1500, kMessageArrived, 0, 1, 64)}).gap, "not matched");
}

TEST(MessageFacts, FailureIsAStatusThatIsNeitherOkNorTruncated) {
  const auto failed = [](Status status) {
    TraceSample sample(1, 2);
    sample.add(1500, kMessageArrived, 0, 1, 64)
        .add(1700, kReceiveDone, 0, 1, static_cast<std::uint64_t>(status));
    return facts({sender(), sample}).failed;
  };
  EXPECT_FALSE(failed(Status::kTruncated));
  EXPECT_TRUE(failed(Status::kPeerFailed));
}

TEST(DescribeDetail, NeverTrustsTheNumber) {
  for (int event = 0; event < static_cast<int>(kCount); ++event) {
    for (const std::uint64_t detail : {std::uint64_t{0}, std::uint64_t{300}, UINT64_MAX})
      describe_detail({0, detail, 0, static_cast<TraceEvent>(event)});
  }
  EXPECT_EQ(describe_detail({0, 300, 0, kSendDone}), "Unknown");
  EXPECT_EQ(describe_detail({0, 0x0004'0002'0000'0007, 0, kMatched}), "context 4 source 2 tag 7");
}

TEST(ParseMessageName, TakesThreeNumbers) {
  const auto name = parse_message_name("0:12:345678901234");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(*name, (MessageName{0, 12, 345678901234}));
  for (const char* text :
       {"", "0", "0:1", "0:1:", "0:1:2:", "0:1:2 ", " 0:1:2", "-1:1:2", "0:1:x", "4294967296:0:1"})
    EXPECT_FALSE(parse_message_name(text).has_value()) << text;
}

TEST(RenderTree, ShowsBothSides) {
  const TraceJob job = merge({sender(), receiver()});
  const std::string tree = render_tree(job.messages()[0], job, LineArt::kAscii);
  EXPECT_NE(tree.find("message 0:1:1  short, 64 B, expected, 0.700 us"), std::string::npos) << tree;
  EXPECT_NE(tree.find("|-- rank 0 on node1 sends\n"), std::string::npos) << tree;
  EXPECT_NE(tree.find("MessageArrived   64 bytes"), std::string::npos) << tree;
  EXPECT_NE(tree.find("0.300 after SendShort"), std::string::npos) << tree;
}

TEST(RenderTree, ShowsBothSidesOfThePort) {
  const TraceJob job = merge({joined_sender(), sending_client(), joined_receiver(), receiving_client()});
  const std::string tree = render_tree(job.messages()[0], job, LineArt::kAscii);
  EXPECT_NE(tree.find("-0.100              SendGiven        64 bytes, done at once\n"), std::string::npos)
      << tree;
  EXPECT_NE(tree.find("SendPosted       64 bytes                          0.100 after SendGiven\n"),
            std::string::npos)
      << tree;
  EXPECT_NE(tree.find("ReceiveGiven     context 0 source 0 tag 7, pending\n"), std::string::npos) << tree;
  EXPECT_NE(tree.find("ReceiveTaken     Ok                                0.100 after ReceiveDone\n"),
            std::string::npos)
      << tree;
}

TEST(RenderTree, ShowsTheRings) {
  const TraceJob job = merge(through_rings());
  const std::string tree = render_tree(job.messages()[0], job, LineArt::kAscii);
  EXPECT_NE(tree.find("CommandTaken     at 128 of the ring                0.050 after CommandPublished\n"),
            std::string::npos)
      << tree;
  EXPECT_NE(tree.find("ReceiveTaken     Ok                                0.160 after EventPublished\n"),
            std::string::npos)
      << tree;
}

TEST(RenderTree, SaysWhatIsMissing) {
  const TraceJob job = merge({sender()});
  const std::string tree = render_tree(job.messages()[0], job, LineArt::kUnicode);
  EXPECT_NE(tree.find("└── rank 1 receives: no trace of it\n"), std::string::npos) << tree;
}

TEST(Slowest, AreInOrderOfLatency) {
  TraceSample from(0, 2);
  TraceSample to(1, 2);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    from.add(1000 * number, kSendPosted, 1, number, 8);
    to.add(1000 * number + 100 * number, kReceiveDone, 0, number, 0);
  }
  const TraceJob job = merge({from, to});
  const auto messages = slowest(job, 2);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]->name.number, 3u);
  EXPECT_EQ(messages[1]->name.number, 2u);
}

TEST(RenderSummary, CountsBytesLatenciesAndSleeps) {
  TraceSample from(0, 2);
  TraceSample to(1, 2);
  for (std::uint64_t number = 1; number <= 100; ++number) {
    from.add(1000 * number, kSendPosted, 1, number, 1024);
    to.add(1000 * number + 1, kMessageArrived, 0, number, 1024);
    if (number % 4 == 0) to.add(1000 * number + 1, kUnexpected, 0, number, 1024);
    to.add(1000 * number + number, kReceiveDone, 0, number, 0);
  }
  TraceSample client(1, 2);
  client.by_client().add(200'000, kSleep, 1).add(205'000, kWake, 1);
  const std::string text = render_summary(merge({from, to, client}), 0);
  EXPECT_NE(text.find("0 -> 1       100  100.0 KiB      0.050   0.099      25.0 %"), std::string::npos)
      << text;
  EXPECT_NE(text.find("1      5.000"), std::string::npos) << text;  // One sleep of 5 us.
}

TEST(RenderSummary, SaysHowLongCommandsAndEventsWaited) {
  const TraceJob job = merge({joined_sender(), sending_client(), joined_receiver(), receiving_client()});
  const std::string text = render_summary(job, 0);
  const std::string table = text.substr(text.find("rank  commands"));
  EXPECT_EQ(
      table,
      "rank  commands  at once  failed  unfinished  wait median us  p99 us  event's wait median us  p99 us\n"
      "   0         1        1       -           -           0.100   0.100                       -       -\n"
      "   1         1        0       -           -           0.010   0.010                   0.100   "
      "0.100\n");
}

TEST(RenderSummary, SaysWhereTheTimeOfAMessageGoes) {
  const std::string text = render_summary(merge(through_rings()), 0);
  const std::size_t begin = text.find("protocol  step");
  EXPECT_EQ(
      text.substr(begin, text.find("\n\n", begin) - begin),
      "protocol  step of expected messages  from              to                messages  median us  p99 us\n"
      "short     sender's call              SendGiven         CommandPublished         1      0.030   0.030\n"
      "short     command ring               CommandPublished  CommandTaken             1      0.050   0.050\n"
      "short     sending NIC                CommandTaken      SendShort                1      0.220   0.220\n"
      "short     wire                       SendShort         MessageArrived           1      0.300   0.300\n"
      "short     receiving NIC              MessageArrived    ReceiveDone              1      0.200   0.200\n"
      "short     receiving NIC, event       ReceiveDone       EventPublished           1      0.040   0.040\n"
      "short     event ring                 EventPublished    ReceiveTaken             1      0.160   0.160\n"
      "short     all of it                  SendGiven         ReceiveTaken             1      1.000   1.000");
}

TEST(RenderSummary, WithoutRingsTheWayHasFewerSteps) {
  const std::string text =
      render_summary(merge({joined_sender(), sending_client(), joined_receiver(), receiving_client()}), 0);
  EXPECT_NE(text.find("sender's call and NIC"), std::string::npos) << text;
  EXPECT_NE(text.find("until the receiver looks"), std::string::npos) << text;
  EXPECT_EQ(text.find("ring"), std::string::npos) << text;
}

TEST(RenderSummary, NothingToSumUpIsNoTrouble) {
  EXPECT_NE(render_summary(merge({TraceSample(0, 1)}), 1).find("all"), std::string::npos);
}

}  // namespace
}  // namespace ch3_offload
