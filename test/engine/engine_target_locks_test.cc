// Locks of tables from end to end: who has one, in which order, and what becomes of it when a process dies or an
// interface is closed. Forged lock messages, too.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/hostile_targets.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kOwner = 0;  ///< Of the table.

class EngineTargetLocks : public HostileTargets {
 protected:
  EngineTargetLocks() { interface_config.has_locks = true; }

  Status ask(std::uint32_t from, TargetOperation operation, std::uint16_t its_table = kTable) {
    TargetRequest request;
    request.operation = operation;
    request.table = its_table;
    request.acknowledgement =
        operation == TargetOperation::kUnlock ? TargetAcknowledgement::kNone : TargetAcknowledgement::kFull;
    request.source.options = kNoSendEvent;
    request.source.queue = at(from).initiator_queue;
    return start(from, kOwner, request);
  }
  void lock(std::uint32_t from, bool is_exclusive = true) {
    EXPECT_EQ(ask(from, is_exclusive ? TargetOperation::kLockExclusive : TargetOperation::kLockShared),
              Status::kOk);
    settle();
  }
  void unlock(std::uint32_t from) {
    EXPECT_EQ(ask(from, TargetOperation::kUnlock), Status::kOk);
    settle();
  }
};

TEST_F(EngineTargetLocks, TheAnswerComesWhenTheLockIsFree) {
  make(3);
  lock(1);
  EXPECT_EQ(begun(1), "ack 0");
  lock(2);
  lock(kOwner);
  EXPECT_EQ(begun(2), "");
  unlock(1);
  EXPECT_EQ(begun(2), "ack 0");
  EXPECT_EQ(begun(kOwner), "");
  unlock(2);
  EXPECT_EQ(begun(kOwner), "ack 0") << "its own process waits as others do";
  lock(1, false);
  EXPECT_EQ(begun(1), "");
  unlock(kOwner);
  lock(2, false);
  EXPECT_EQ(begun(1), "ack 0");
  EXPECT_EQ(begun(2), "ack 0") << "readers share it";
}

TEST_F(EngineTargetLocks, WhatWasPutBeforeTheUnlockIsThereForTheNext) {
  make(3);
  std::vector<std::byte> target(8), data = pattern(8);
  append(kOwner, entry_of(target));
  lock(1);
  lock(2);
  ASSERT_EQ(start(1, kOwner, put_from(1, data)), Status::kOk);
  ASSERT_EQ(ask(1, TargetOperation::kUnlock), Status::kOk);
  for (int i = 0; i < 1000 && begun(2).empty(); ++i) step();
  EXPECT_EQ(target, data);
}

TEST_F(EngineTargetLocks, TheDeathOfAHolderIsToldToWhoeverWaits) {
  make(3);
  lock(1);
  lock(2);
  lock(kOwner);
  begun(1);
  kill(1);
  settle();
  EXPECT_EQ(begun(2), "ack lock-broken 0");
  EXPECT_EQ(begun(kOwner), "ack lock-broken 0");
  lock(2, false);
  EXPECT_EQ(begun(2), "ack lock-broken 0") << "nobody gets it any more";
  EXPECT_EQ(at(kOwner).interface->free_table(kTable), Status::kOk) << "and nobody has it";
}

TEST_F(EngineTargetLocks, TheDeathOfAWaiterLetsTheNextHaveIt) {
  make(3);
  lock(kOwner);
  lock(1);
  lock(2);
  kill(1);
  settle();
  unlock(kOwner);
  EXPECT_EQ(begun(2), "ack 0");
}

TEST_F(EngineTargetLocks, TheDeathOfTheOwnerEndsTheWait) {
  make(3);
  lock(1);
  lock(2);
  begun(1);
  kill(kOwner);
  settle();
  EXPECT_EQ(begun(2), "ack undeliverable 0");
}

TEST_F(EngineTargetLocks, ATableThatIsLockedIsNotFreed) {
  make(2);
  lock(1);
  EXPECT_EQ(at(kOwner).interface->free_table(kTable), Status::kAgain);
  unlock(1);
  EXPECT_EQ(at(kOwner).interface->free_table(kTable), Status::kOk);
}

TEST_F(EngineTargetLocks, AnInterfaceThatIsClosedRefusesThoseWhoWait) {
  make(3);
  lock(1);
  lock(2);
  begun(1);
  at(kOwner).engine->close_targets(0);
  settle();
  EXPECT_EQ(begun(2), "ack dropped 0");
  unlock(1);  // Of what is gone: harmless.
  lock(2);
  EXPECT_EQ(begun(2), "ack dropped 0");
  EXPECT_TRUE(at(kOwner).failures.empty());
  EXPECT_TRUE(at(1).failures.empty());
}

TEST_F(EngineTargetLocks, WhatIsNotThereIsRefused) {
  interface_config.has_locks = false;
  make(2);
  lock(1);
  EXPECT_EQ(begun(1), "ack dropped 0") << "the interface has no locks";
  EXPECT_EQ(ask(kOwner, TargetOperation::kUnlock), Status::kUnsupported);
  TargetRequest request;
  request.operation = TargetOperation::kUnlock;
  request.acknowledgement = TargetAcknowledgement::kFull;
  EXPECT_EQ(start(1, kOwner, request), Status::kUnsupported) << "an unlock is not answered";
  request.operation = TargetOperation::kLockShared;
  request.acknowledgement = TargetAcknowledgement::kNone;
  EXPECT_EQ(start(1, kOwner, request), Status::kUnsupported) << "a lock is";
}

TEST_F(EngineTargetLocks, AForgedMessageCostsTheConnection) {
  violations_expected = true;
  wire::TargetLockHeader header;
  header.common = {wire::Kind::kTargetLock, 0, wire::kTargetClient};
  header.operation = 1;
  header.table = kTable;
  const auto expect_bad = [&](const char* what, const wire::TargetLockHeader& forged, std::size_t more = 0,
                              bool has_lock = false) {
    SCOPED_TRACE(what);
    processes.clear();
    cards.clear();
    make_three();
    if (has_lock) attack(with_data(header, 0));
    attack(with_data(forged, more));
    expect_refused(what);
  };
  wire::TargetLockHeader forged = header;
  expect_bad("more than a header", forged, 1);
  forged.is_exclusive = 2;
  expect_bad("neither shared nor exclusive", forged);
  forged = header;
  forged.operation = 0;
  expect_bad("a lock without a question", forged);
  expect_bad("a lock of what it has", header, 0, true);
  forged = header;
  forged.common.kind = wire::Kind::kTargetUnlock;
  expect_bad("an unlock with a question", forged);
  forged.operation = 0;
  expect_bad("an unlock of what it has not", forged);
}

}  // namespace
}  // namespace ch3_offload
