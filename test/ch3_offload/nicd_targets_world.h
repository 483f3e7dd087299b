// What the tests of target entries behind a node's network processor share: its clients, whose interfaces
// are open.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_world.h"
#include "engine/targets/target_event_ring.h"
#include "engine/targets/told_memory.h"
#include "nic/user_key.h"

namespace ch3_offload {

using Bytes = std::vector<std::byte>;

class NicdTargetPorts : public NicdWorld {
 protected:
  static constexpr std::uint16_t kTable = 3;

  /// A process with an open interface.
  struct Process {
    TargetPort* port = nullptr;
    TargetBoardMemory board;
    std::unique_ptr<TargetEventMemory> events;
    QueueId queue{};
    CounterId counter{};
  };

  ~NicdTargetPorts() override { processes_.clear(); }

  void make(std::uint32_t size = 2) {
    for (std::uint32_t i = 0; i < size; ++i) {
      attach(is_lone_ ? lone_hello() : hello_of(i, size));
      processes_.emplace_back();
      open(i);
    }
  }
  void open(std::uint32_t i) {
    Result<TargetPort*> port = drivers_[i]->attach_targets();
    ASSERT_TRUE(port.ok()) << port.error().message;
    Process& its = processes_[i];
    its.port = port.value();
    its.board = make_board(its.port->told_memory());
    its.events = TargetEventMemory::make(its.port->told_memory(), 1000, 4);
    ASSERT_EQ(its.port->open(0, {}, *its.board), Status::kOk);
    its.queue = its.port->make_queue(0, its.events->ring);
    its.counter = its.port->make_counter(0);
    ASSERT_EQ(its.port->make_table(0, kTable, its.queue, false), Status::kOk);
  }
  TargetPort& port(std::uint32_t i) { return *processes_[i].port; }
  /// Of a process of no job. `pid` 0: any.
  NicdHello lone_hello(std::uint16_t pid = 0) {
    ch3_offload_config_t config = config_of(0);
    config.local_rank = 0;
    NicdHello hello = hello_of(config);
    hello.is_lone = 1;
    hello.key_proves = 1;
    std::memcpy(hello.key.data(), secret_.data(), secret_.size());
    hello.nid = 0x7F000001;  // 127.0.0.1
    hello.pid = pid;
    return hello;
  }
  ProcessId id_of(std::uint32_t i) const {
    if (!is_lone_) return make_logical_id(i);
    const auto elsewhere = ids_elsewhere_.find(i);
    return elsewhere == ids_elsewhere_.end() ? drivers_[i]->process() : elsewhere->second;
  }

  void append(std::uint32_t i, std::span<std::byte> memory, std::uint64_t bits) {
    TargetDescription entry;
    entry.start = memory.data();
    entry.length_bytes = memory.size();
    entry.key.bits = MatchBits{bits};
    entry.ignore = {MatchBits{0}, kAnyProcess};
    entry.options = kAllowPut | kAllowGet | kNoLinkEvent | kCountComm | kNoCommEvent;
    entry.counter = processes_[i].counter;
    TargetId id{};
    ASSERT_EQ(port(i).append(0, kTable, TargetListKind::kPriority, entry, id), Status::kOk);
    ASSERT_NE(id, kNoTarget);
  }
  TargetRequest request_from(std::uint32_t i, TargetOperation operation, std::uint64_t bits) {
    TargetRequest request;
    request.operation = operation;
    request.table = kTable;
    request.bits = MatchBits{bits};
    request.acknowledgement = TargetAcknowledgement::kFull;
    request.source.options = kNoSendEvent;
    request.source.queue = request.destination.queue = processes_[i].queue;
    return request;
  }
  static Payload payload(std::span<std::byte> memory) { return {memory.data(), memory.size(), nullptr}; }
  TargetRequest put_from(std::uint32_t i, std::span<std::byte> data, std::uint64_t bits) {
    TargetRequest request = request_from(i, TargetOperation::kPut, bits);
    request.source.memory = payload(data);
    return request;
  }
  TargetRequest get_from(std::uint32_t i, std::span<std::byte> data, std::uint64_t bits) {
    TargetRequest request = request_from(i, TargetOperation::kGet, bits);
    request.destination.memory = payload(data);
    return request;
  }
  TargetRequest sum_from(std::uint32_t i, std::span<std::byte> operand, std::span<std::byte> old,
                         std::uint64_t bits) {
    TargetRequest request = put_from(i, operand, bits);
    request.operation = TargetOperation::kFetchAtomic;
    request.atomic_operation = AtomicOperation::kSum;
    request.atomic_type = AtomicType::kUint64;
    request.destination.memory = payload(old);
    return request;
  }

  static NicdHello of_another_job(NicdHello hello) {
    hello.secret = make_secret(0xFE);
    return hello;
  }
  /// Of a client that speaks for itself.
  static std::uint64_t ask(ByHand& client, CommandKind kind) {
    CommandRecord command;
    command.kind = kind;
    RingProducer commands = client.memory->command_producer();
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command);
    std::uint64_t rung = 0;
    NicWords& words = client.memory->words();
    PortMemory::ring(words.nic_sleeps, client.memory->nic_bell(), rung);
    EXPECT_TRUE(await([&] { return words.answered.load() == 1; }));
    return words.answer;
  }
  static PortMemory receive_targets(ByHand& client) {
    NicdTargets targets;
    std::array<FileDescriptor, PortMemory::kFiles> files;
    EXPECT_EQ(receive_with_files(client.socket, std::as_writable_bytes(std::span(&targets, 1)), files),
              Receipt::kMessage);
    return std::move(PortMemory::attach(std::move(files)).value());
  }

  /// The clients of messages answer what is asked of them: cards.
  bool until(const std::function<bool()>& is_so) {
    return await([&] {
      turn();
      return is_so();
    });
  }
  TargetEvent next_event(std::uint32_t i) {
    TargetEvent event;
    event.failure = TargetFailure::kEnd;
    bool lost = false;
    EXPECT_TRUE(until([&] { return TargetEventReader(processes_[i].events->ring).take(event, lost); }));
    return event;
  }
  /// A request of process 0 to process 1 that succeeds.
  void run(const TargetRequest& request) {
    ASSERT_EQ(port(0).request(id_of(1), request), Status::kOk);
    const TargetEvent event = next_event(0);
    EXPECT_EQ(event.failure, TargetFailure::kNone);
    EXPECT_EQ(event.length_bytes, request.length_bytes());
  }
  static Bytes pattern(std::size_t length_bytes) {
    Bytes bytes(length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    return bytes;
  }
  std::uint64_t counted(std::uint32_t i) {
    return processes_[i].board->counters[counter_index(processes_[i].counter)].success.load();
  }

  bool is_lone_ = false;
  std::map<std::uint32_t, ProcessId> ids_elsewhere_;  ///< Of lone processes that are none of drivers_.
  std::vector<Process> processes_;                    ///< Before drivers_, which has the ports.
};

}  // namespace ch3_offload
