// What the processor refuses of its second client: commands that no client of ours gives.

#include "nic/target_server.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "nic/fake_process_book.h"
#include "nic/other_memory.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {
namespace {

using Kind = TargetCommandKind;
using Bytes = std::vector<std::byte>;

/// A processor whose client is the test: it writes whatever it likes into the ring.
class Processor {
 public:
  /// `client`: of a client in another process. Null: it is in this one.
  explicit Processor(OtherMemory* client = nullptr) {
    Provider* const providers[] = {provider_.get()};
    EngineConfig config;
    config.first_book_peer = PeerId{0};
    driver_ = std::make_unique<HostDriver>(config, providers);
    targets_ =
        std::make_unique<HostTargets>(*driver_, book_, client == nullptr ? nullptr : &client->client());
    server_ = std::make_unique<TargetServer>(*targets_, memory_);
    commands_ = memory_.command_producer();
  }
  ~Processor() { targets_->close_all(); }
  void give(const Bytes& record) {
    ASSERT_TRUE(commands_.has_room(record.size()));
    std::memcpy(commands_.payload(), record.data(), record.size());
    commands_.publish(RecordKind::kMessage, record.size());
    static_cast<void>(server_->turn());
  }
  bool is_refused() const { return server_->is_refused(); }
  std::uint64_t answered() const { return memory_.words().answered.load(); }
  Status status() const { return memory_.words().status; }
  std::uint64_t name() const { return memory_.words().answer; }
  TargetServer& server() { return *server_; }
  NicWords& words() { return memory_.words(); }
  void put_client_to_sleep() { memory_.words().client_sleeps = 1; }
  bool has_woken_client() const { return memory_.words().client_sleeps == 0; }

  TargetBoard board;

 private:
  FakeNetwork network_{FakeConfig{}};
  std::unique_ptr<FakeProvider> provider_ = network_.make_provider(PeerId{0});
  std::unique_ptr<HostDriver> driver_;
  FakeProcessBook book_{0, {{make_physical_id(1, 1), UserId{7}, ""}}};
  std::unique_ptr<HostTargets> targets_;
  PortMemory memory_ = std::move(PortMemory::make().value());
  std::unique_ptr<TargetServer> server_;
  RingProducer commands_;
};

TargetCommand head(Kind kind) {
  TargetCommand command;
  command.kind = kind;
  return command;
}
Bytes record(const TargetCommand& command) {
  Bytes bytes(sizeof command);
  std::memcpy(bytes.data(), &command, sizeof command);
  return bytes;
}
template <class T>
Bytes record(const TargetCommand& command, const T& more) {
  Bytes bytes = record(command);
  bytes.resize(sizeof command + sizeof more);
  std::memcpy(bytes.data() + sizeof command, &more, sizeof more);
  return bytes;
}
Bytes opening(const TargetBoard& board) {
  TargetCommand command = head(Kind::kOpen);
  command.address = reinterpret_cast<std::uint64_t>(&board);
  return record(command, TargetInterfaceConfig{});
}

void expect_refused(const char* what, const Bytes& bytes) {
  SCOPED_TRACE(what);
  Processor processor;
  processor.give(opening(processor.board));
  ASSERT_EQ(processor.status(), Status::kOk);
  const std::uint64_t answered = processor.answered();
  processor.give(bytes);
  EXPECT_TRUE(processor.is_refused());
  processor.give(record(head(Kind::kMakeCounter)));
  EXPECT_EQ(processor.answered(), answered) << "nothing more of it is taken";
}

TEST(TargetServer, AnswersWhatIsSound) {
  Processor processor;
  processor.give(record(head(Kind::kMakeCounter)));
  EXPECT_EQ(processor.answered(), 1u);
  EXPECT_EQ(processor.status(), Status::kUnsupported) << "the interface is not open";
  processor.give(opening(processor.board));
  EXPECT_EQ(processor.status(), Status::kOk);
  processor.give(opening(processor.board));
  EXPECT_EQ(processor.status(), Status::kAgain);
  processor.give(record(head(Kind::kMakeCounter)));
  EXPECT_NE(processor.name(), 0u);
  processor.give(record(head(Kind::kClose)));
  EXPECT_EQ(processor.status(), Status::kOk);
  EXPECT_FALSE(processor.is_refused());
}

/// It may wait for nothing but that (RingTargets::idle()): it was not told of anything.
TEST(TargetServer, WakesAClientWhenAllHasLeft) {
  Processor processor;
  processor.put_client_to_sleep();
  processor.give(record(head(Kind::kMakeCounter)));
  EXPECT_EQ(processor.status(), Status::kUnsupported);
  EXPECT_TRUE(processor.has_woken_client());
}

TEST(TargetServer, WakesAClientThatSleepsUntilItsAnswerComes) {
  Processor processor;
  processor.words().client_waits = 1;
  processor.give(record(head(Kind::kMakeCounter)));
  EXPECT_EQ(processor.words().client_waits, 0U);
}

TEST(TargetServer, RefusesKindsLengthsAndNumbersThatAreNone) {
  Bytes cut = record(head(Kind::kMakeCounter));
  cut.pop_back();
  expect_refused("a head that is cut", cut);
  expect_refused("no kind", record(head(Kind{})));
  expect_refused("a kind of the future", record(head(Kind{200})));
  TargetCommand command = head(Kind::kMakeCounter);
  command.interface = kTargetInterfaces;
  expect_refused("no interface", record(command));
  command = head(Kind::kMakeTable);
  command.option = 2;
  expect_refused("no option", record(command));
  expect_refused("more than a head", record(head(Kind::kMakeCounter), std::byte{}));
  expect_refused("an opening without its limits", record(head(Kind::kOpen)));
  command = head(Kind::kOpen);
  command.interface = 1;
  expect_refused("an opening without a board", record(command, TargetInterfaceConfig{}));
  expect_refused("a queue without a ring", record(head(Kind::kMakeQueue)));
  Bytes append = record(head(Kind::kAppend), TargetDescription{});
  append.pop_back();
  expect_refused("an entry that is cut", append);
  expect_refused("a triggered entry without it", record(head(Kind::kTriggerAppend)));
  expect_refused("an unlink with more than a head", record(head(Kind::kTriggerUnlink), std::byte{}));
  expect_refused("a search for nothing", record(head(Kind::kSearch)));
}

TEST(TargetServer, RefusesValuesThatAreNone) {
  TargetCountChange change;
  change.kind = TargetCountChange::Kind{2};
  expect_refused("no change", record(head(Kind::kChangeCounter), change));
  expect_refused("no triggered change", record(head(Kind::kTriggerCount), change));
  TargetRequest request;
  request.operation = TargetOperation{8};
  expect_refused("no operation", record(head(Kind::kRequest), request));
  request = {};
  request.acknowledgement = TargetAcknowledgement{4};
  expect_refused("no acknowledgement", record(head(Kind::kTriggerRequest), request));
  request = {};
  request.interface = 1;
  expect_refused("another interface than its head's", record(head(Kind::kRequest), request));
  request = {};
  Bytes longer = record(head(Kind::kRequest), request);
  longer.push_back(std::byte{});
  expect_refused("more than a request", longer);
}

/// A client in another process, with an open interface and a table.
class OtherClient {
 public:
  explicit OtherClient(KernelCopies copies = KernelCopies::kAllowed)
      : memory(0, 1, copies), board(make_board(memory.told())), processor(&memory) {
    processor.give(opening(*board));
    EXPECT_EQ(processor.status(), Status::kOk);
    processor.give(record(head(Kind::kMakeTable)));
    EXPECT_EQ(processor.status(), Status::kOk);
  }
  OtherMemory memory;
  const TargetBoardMemory board;
  Processor processor;
};

void expect_refused(const char* what, const Bytes& bytes, KernelCopies copies) {
  SCOPED_TRACE(what);
  OtherClient client(copies);
  client.processor.give(bytes);
  EXPECT_TRUE(client.processor.is_refused());
}

TEST(TargetServer, RefusesMemoryOfAnotherProcessThatIsNone) {
  const std::vector<Piece> pieces(4097, Piece{0, 1});
  PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces, .piece_count = 4097, .pieces = pieces.data()};
  layout.element_bytes = 4097;
  std::byte byte{};
  TargetDescription entry;
  entry.start = &byte;
  entry.length_bytes = 4097;
  entry.layout = &layout;
  TargetRequest request;
  request.source.memory = {&byte, 4097, &layout};
  const auto refused = [&](const char* what) {
    expect_refused(what, record(head(Kind::kAppend), entry), KernelCopies::kAllowed);
    expect_refused(what, record(head(Kind::kTriggerAppend), entry), KernelCopies::kAllowed);
    expect_refused(what, record(head(Kind::kRequest), request), KernelCopies::kAllowed);
    expect_refused(what, record(head(Kind::kTriggerRequest), request), KernelCopies::kAllowed);
  };
  refused("too many pieces");
  layout.piece_count = 4096;
  refused("another sum");
  layout.kind = PayloadLayout::Kind::kPacked;
  refused("functions");
  request.source.memory = {&byte, std::size_t{1} << 56, nullptr};
  expect_refused("too long", record(head(Kind::kRequest), request), KernelCopies::kAllowed);
  request.operation = TargetOperation::kGet;
  request.destination.memory = request.source.memory;
  expect_refused("too long a get", record(head(Kind::kRequest), request), KernelCopies::kAllowed);
}

/// Where the kernel refuses copies, there is nothing but shared memory.
TEST(TargetServer, RefusesMemoryThatItCannotReach) {
  std::byte bytes[16]{};
  TargetDescription entry;
  entry.start = bytes;
  entry.length_bytes = sizeof bytes;
  expect_refused("an entry", record(head(Kind::kAppend), entry), KernelCopies::kRefused);
  TargetRequest request;
  request.source.memory = {bytes, sizeof bytes, nullptr};
  expect_refused("a request", record(head(Kind::kRequest), request), KernelCopies::kRefused);
  OtherClient client(KernelCopies::kRefused);
  entry.start = client.memory.told()->allocate(16);
  client.processor.give(record(head(Kind::kAppend), entry));
  EXPECT_EQ(client.processor.status(), Status::kOk);
  EXPECT_NE(client.processor.name(), 0u);
  TargetCommand ranks = head(Kind::kSetRanks);
  ranks.address = reinterpret_cast<std::uint64_t>(bytes);
  ranks.length = 2;
  client.processor.give(record(ranks));
  EXPECT_EQ(client.processor.status(), Status::kUnsupported);
}

/// Whoever runs the processor drops it.
TEST(TargetServer, AClientWithoutTheMemoryThatItNamesIsBroken) {
  PayloadLayout* const nowhere = reinterpret_cast<PayloadLayout*>(8);
  TargetDescription entry;
  entry.length_bytes = 8;
  entry.layout = nowhere;
  OtherClient appends;
  appends.processor.give(record(head(Kind::kAppend), entry));
  EXPECT_TRUE(appends.memory.client().is_broken());
  OtherClient puts;
  entry.layout = nullptr;
  entry.start = reinterpret_cast<std::byte*>(8);
  entry.options = kAllowPut;
  puts.processor.give(record(head(Kind::kAppend), entry));
  EXPECT_FALSE(puts.memory.client().is_broken()) << "an entry may be where no memory is";
  puts.processor.give(record(head(Kind::kMakeCounter)));
  TargetRequest request;
  request.source.memory = {reinterpret_cast<std::byte*>(8), 8, nullptr};
  request.source.options = kCountSend;
  request.source.counter = CounterId{puts.processor.name()};
  TargetCommand to_itself = head(Kind::kRequest);
  to_itself.process = make_physical_id(1, 1);
  puts.processor.give(record(to_itself, request));
  EXPECT_TRUE(puts.memory.client().is_broken());
  const auto& words = puts.board->counters[counter_index(request.source.counter)];
  EXPECT_EQ(words.success.load() + words.failure.load(), 0u) << "it is told of nothing";
  OtherClient ranks;
  TargetCommand command = head(Kind::kSetRanks);
  command.address = 8;
  command.length = 2;
  ranks.processor.give(record(command));
  EXPECT_TRUE(ranks.memory.client().is_broken());
}

TEST(TargetServer, AListOfRanksHasAnEnd) {
  OtherClient client;
  TargetCommand command = head(Kind::kSetRanks);
  command.address = reinterpret_cast<std::uint64_t>(&command);
  for (const std::uint64_t length : {TargetAddresses::kMost + 1, UINT64_MAX, UINT64_MAX / 8 + 1}) {
    command.length = length;
    client.processor.give(record(command));
    EXPECT_EQ(client.processor.status(), Status::kNoMemory);
  }
  EXPECT_FALSE(client.processor.is_refused());
}

TEST(TargetServer, DoesNotSleepOverACommand) {
  Processor processor;
  EXPECT_TRUE(processor.server().arm());
  processor.server().disarm();
  processor.give(opening(processor.board));
  EXPECT_TRUE(processor.server().arm());
  processor.server().disarm();
}

}  // namespace
}  // namespace ch3_offload
