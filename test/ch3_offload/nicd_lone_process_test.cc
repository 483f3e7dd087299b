// Processes of no job behind a node's network processor.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ch3_offload/lone_process.h"
#include "ch3_offload/nicd_targets_world.h"
#include "nic/host_driver.h"
#include "nic/host_targets.h"

namespace ch3_offload {
namespace {

class NicdLone : public NicdTargetPorts {
 protected:
  NicdLone() { is_lone_ = true; }
};

/// One that has an engine of its own.
class Elsewhere {
 public:
  explicit Elsewhere(const NicdHello& hello) {
    const UserKey key = UserKey::of_bytes(hello.key, hello.key_proves != 0);
    ch3_offload_config_default(&config_);
    config_.local_size = 2;
    config_.fabric = "shm";
    set_lone(config_, key);
    const LoneLog log{[](void*, LogScope, const char*) {}, nullptr};
    providers_ = std::move(make_lone_providers(config_, key, log, index_of(kFirstLonePeer)).value());
    std::vector<Provider*> providers;
    for (const auto& one : providers_) providers.push_back(one.get());
    driver_ = std::make_unique<HostDriver>(lone_engine_config(config_), providers);
    Introductions::Config introductions = introductions_config(config_, key, driver_->card(), log);
    introductions.nid = hello.nid;
    book_ = std::move(Introductions::create(introductions).value());
    port_ = std::make_unique<HostTargets>(*driver_, *book_);
  }
  TargetPort& port() { return *port_; }
  ProcessId id() const { return book_->self(); }

 private:
  ch3_offload_config_t config_{};
  std::vector<std::unique_ptr<Provider>> providers_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<Introductions> book_;
  std::unique_ptr<HostTargets> port_;
};

TEST_F(NicdLone, MeetsAProcessWithAnEngineOfItsOwn) {
  make(1);
  Elsewhere elsewhere(lone_hello());
  ids_elsewhere_[1] = elsewhere.id();
  TargetBoardMemory board = make_board(elsewhere.port().told_memory());
  ASSERT_EQ(elsewhere.port().open(0, {}, *board), Status::kOk);
  ASSERT_EQ(elsewhere.port().make_table(0, kTable, kNoQueue, false), Status::kOk);
  Bytes memory(300'000), data = pattern(300'000), back(300'000);
  TargetDescription entry;
  entry.start = memory.data();
  entry.length_bytes = memory.size();
  entry.ignore = {MatchBits{UINT64_MAX}, kAnyProcess};
  entry.options = kAllowPut | kAllowGet;
  TargetId id{};
  ASSERT_EQ(elsewhere.port().append(0, kTable, TargetListKind::kPriority, entry, id), Status::kOk);
  for (const TargetRequest& request : {put_from(0, data, 1), get_from(0, back, 1)}) {
    ASSERT_EQ(port(0).request(id_of(1), request), Status::kOk);
    TargetEvent event;
    event.failure = TargetFailure::kEnd;
    bool lost = false;
    EXPECT_TRUE(until([&] {
      elsewhere.port().progress();
      return TargetEventReader(processes_[0].events->ring).take(event, lost);
    }));
    EXPECT_EQ(event.failure, TargetFailure::kNone);
  }
  EXPECT_EQ(memory, data);
  EXPECT_EQ(back, data);
  while (!elsewhere.port().close(0)) elsewhere.port().progress();
}

TEST_F(NicdLone, APidBelongsToOneProcess) {
  attach(lone_hello());  // With which the processor ends.
  ProcessDriver& first = attach(lone_hello());
  const auto pid = static_cast<std::uint16_t>(number_of(first.process()));
  EXPECT_NE(pid, 0);
  Result<Driver> second = ProcessDriver::create(lone_hello(pid), {}, short_wait(), nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().status, Status::kAgain);
  drivers_.pop_back();
  // When the processor has seen that the first one has ended.
  EXPECT_TRUE(await([&] {
    second = ProcessDriver::create(lone_hello(pid), {}, short_wait(), nullptr);
    return second.ok();
  }));
  EXPECT_EQ(second.value()->process(), make_physical_id(0x7F000001, pid));
}

TEST_F(NicdLone, OneThatCannotBeServedIsRefused) {
  attach(lone_hello());  // With which the processor ends.
  NicdHello hello = lone_hello();
  hello.probe_address = 8;
  EXPECT_NE(refusal(hello).find("may not read the memory of this process"), std::string::npos);
  hello = lone_hello();
  hello.key_proves = 0;
  std::string settings(text_of(hello.settings));
  const std::string_view shm = "FABRIC=shm";
  settings.replace(settings.find(shm), shm.size(), "FABRIC=verbs");
  set_text(hello.settings, settings);
  EXPECT_NE(refusal(hello).find("needs a key file"), std::string::npos);
  hello = lone_hello();
  hello.nid = 0;
  EXPECT_NE(refusal(hello).find("does not say its nid"), std::string::npos);
}

TEST_F(NicdLone, MeetsOthersByItsBookOnly) {
  ProcessDriver& driver = attach(lone_hello());
  const Result<std::string> card = driver.reach_foreign(UserKey::of_user(UserId{::geteuid()}));
  ASSERT_FALSE(card.ok());
  EXPECT_NE(card.error().message.find("is of no job"), std::string::npos) << card.error().message;
}

/// Its peer does not get what could not be read.
TEST_F(NicdLone, OneThatNamesMemoryThatIsNotThereIsDropped) {
  make(2);
  Bytes memory = pattern(64);
  append(0, memory, 1);
  const ProcessId target = id_of(0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    attach(lone_hello());
    processes_.emplace_back();
    open(2);
    TargetRequest request = put_from(2, {}, 1);
    request.source.memory = {reinterpret_cast<std::byte*>(8), kMostVolatileBytes + 1, nullptr};
    if (port(2).request(target, request) == Status::kOk)
      for (;;) port(2).progress();  // It ends this process.
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE) << status;
  // The others go on.
  Bytes data = pattern(8);
  ASSERT_EQ(port(1).request(id_of(0), put_from(1, data, 1)), Status::kOk);
  EXPECT_EQ(next_event(1).failure, TargetFailure::kNone);
  EXPECT_TRUE(until([&] { return counted(0) == 1; }));
  EXPECT_EQ(memory, pattern(64)) << "only the second put arrived";
}

/// It has no peers that its first port could name, and it is none.
TEST_F(NicdLone, OneThatSendsMessagesIsDropped) {
  make(1);
  // A card of itself that says that it cannot be reached would end its operations on itself.
  for (const auto& [kind, peer] :
       {std::pair(CommandKind::kFailPeer, 1U), std::pair(CommandKind::kIntroduce, 0U)}) {
    const auto client = attach_by_hand(lone_hello());
    CommandRecord command;
    command.kind = kind;
    command.peer = peer;
    RingProducer commands = client->memory->command_producer();
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command);
    std::uint64_t rung = 0;
    PortMemory::ring(client->memory->words().nic_sleeps, client->memory->nic_bell(), rung);
    EXPECT_NE(client->last_words().find("holds rubbish"), std::string::npos);
  }
}

}  // namespace
}  // namespace ch3_offload
