// What the tests of a node's network processor share: one that runs in a thread of this process, and its clients.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ch3_offload/nicd.h"
#include "ch3_offload/nicd_hello.h"
#include "nic/process_driver.h"
#include "nic/short_wait.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {

using Driver = std::unique_ptr<ProcessDriver>;

inline constexpr MatchKey kKey = make_match_key(1, 0, 7);

/// Another one for each test.
inline JobSecret make_secret(unsigned char number) {
  JobSecret secret{};
  const pid_t pid = ::getpid();
  std::memcpy(secret.data(), &pid, sizeof pid);
  secret.back() = static_cast<decltype(secret)::value_type>(number);
  return secret;
}

/// Until it is so. False: it never was.
inline bool await(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class NicdWorld : public testing::Test {
 protected:
  NicdWorld() : secret_(make_secret(++last_)), name_(nicd_name(::geteuid(), secret_)) {
    processor_ = std::thread([this] {
      auto nicd = Nicd::create({name_, true});
      ASSERT_TRUE(nicd.ok());
      status_ = nicd.value()->run();
    });
    EXPECT_TRUE(await([this] { return connect_to_nicd(name_).ok(); }));
  }
  /// It ends with its last client.
  ~NicdWorld() override {
    drivers_.clear();
    processor_.join();
    EXPECT_EQ(status_, 0);
  }

  /// Of a job on one node.
  static ch3_offload_config_t config_of(std::uint32_t rank, std::uint32_t job_size = 2) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = rank;
    config.job_size = job_size;
    config.local_size = job_size;
    config.local_rank = rank + 1;  // Starts nothing.
    config.fabric = "shm";
    return config;
  }
  NicdHello hello_of(const ch3_offload_config_t& config) {
    NicdHello hello = make_hello(config);
    hello.secret = secret_;
    return hello;
  }
  NicdHello hello_of(std::uint32_t rank, std::uint32_t job_size = 2) {
    return hello_of(config_of(rank, job_size));
  }
  ProcessDriver& attach(const NicdHello& hello) {
    Result<Driver> made = ProcessDriver::create(hello, {}, short_wait(), nullptr);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *drivers_.emplace_back(std::move(made.value()));
  }
  /// Why that one is refused. "": it is not.
  std::string refusal(const NicdHello& hello) {
    Result<Driver> made = ProcessDriver::create(hello, {}, short_wait(), nullptr);
    return made.ok() ? "" : made.error().message;
  }

  /// A client that speaks for itself.
  struct ByHand {
    /// What the processor says at last, before it ends the connection.
    std::string last_words() {
      std::array<char, 200> text{};
      EXPECT_TRUE(
          await([&] { return ::recv(socket.get(), text.data(), text.size() - 1, MSG_DONTWAIT) > 0; }));
      char byte;
      EXPECT_TRUE(await([&] { return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
      return text.data();
    }

    const std::uint64_t probe = NicdHello::kMagic;
    FileDescriptor socket;
    std::optional<PortMemory> memory;
  };
  std::unique_ptr<ByHand> attach_by_hand(NicdHello hello, bool is_readable = true) {
    auto client = std::make_unique<ByHand>();
    client->socket = std::move(connect_to_nicd(name_).value());
    hello.probe_address = is_readable ? reinterpret_cast<std::uint64_t>(&client->probe) : 8;
    EXPECT_TRUE(send_with_files(client->socket, std::as_bytes(std::span(&hello, 1)), {}));
    auto welcome = std::make_unique<NicdWelcome>();
    std::array<FileDescriptor, PortMemory::kFiles> files;
    EXPECT_TRUE(await([&] {
      return receive_with_files(client->socket, std::as_writable_bytes(std::span(welcome.get(), 1)), files) ==
             Receipt::kMessage;
    })) << text_of(welcome->text);
    Result<PortMemory> memory = PortMemory::attach(std::move(files));
    EXPECT_TRUE(memory.ok());
    client->memory.emplace(std::move(memory.value()));
    return client;
  }

  /// What the processor says to these bytes, by hand. "": the connection ends.
  std::string answer_to(std::span<const std::byte> message) {
    Result<FileDescriptor> socket = connect_to_nicd(name_);
    EXPECT_TRUE(socket.ok());
    EXPECT_TRUE(send_with_files(socket.value(), message, {}));
    auto welcome = std::make_unique<NicdWelcome>();
    Receipt receipt = Receipt::kNothing;
    EXPECT_TRUE(await([&] {
      receipt = receive_with_files(socket.value(), std::as_writable_bytes(std::span(welcome.get(), 1)), {});
      return receipt != Receipt::kNothing;
    }));
    return receipt == Receipt::kMessage ? std::string(text_of(welcome->text)) : "";
  }

  std::string card_of(PeerId peer) {
    const auto elsewhere = cards_elsewhere_.find(peer);
    return elsewhere == cards_elsewhere_.end() ? drivers_[index_of(peer)]->card() : elsewhere->second;
  }
  /// Takes the events of both, answers what they ask, and counts their completions.
  void turn() {
    for (std::size_t i = 0; i < drivers_.size(); ++i) {
      if (drivers_[i] == nullptr) continue;
      drivers_[i]->progress();
      for (Event event; drivers_[i]->next_event(event);) {
        done_[i] += event.kind <= Event::Kind::kCancelDone;
        if (event.kind == Event::Kind::kReceiveDone) received_bytes_ = event.length_bytes;
        if (event.kind == Event::Kind::kPeerFailed) ++failed_[i];
        if (event.kind == Event::Kind::kCardWanted) drivers_[i]->introduce(event.peer, card_of(event.peer));
        if (event.kind == Event::Kind::kWarning)
          warnings_.append(reinterpret_cast<const char*>(event.bytes), event.length_bytes);
      }
    }
  }
  /// Memory of process `i`, for a message.
  SharedBlock make_block(std::size_t i, std::size_t length_bytes) {
    if (are_shared_) return SharedBlock(drivers_[i]->arena()->allocate(length_bytes), {drivers_[i]->arena()});
    return SharedBlock(new std::byte[length_bytes]);
  }
  void exchange(std::size_t length_bytes) {
    const SharedBlock send_block = make_block(0, length_bytes), receive_block = make_block(1, length_bytes);
    const std::span sent(send_block.get(), length_bytes), room(receive_block.get(), length_bytes);
    std::ranges::fill(room, std::byte{});
    for (std::size_t i = 0; i < length_bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
    OperationId operation;
    Envelope envelope;
    Status status;
    const int before = done_[1];
    ASSERT_EQ(drivers_[1]->post_receive(kKey, kIgnoreNothing, {room.data(), length_bytes, nullptr}, nullptr,
                                        operation, envelope),
              Progressed::kPending);
    const int sends = done_[0];
    const bool is_pending =
        drivers_[0]->send(PeerId{1}, SendMode::kStandard, kKey, {sent.data(), length_bytes, nullptr}, 0,
                          nullptr, operation, status) == Progressed::kPending;
    EXPECT_TRUE(await([&] {
      turn();
      return done_[1] > before && done_[0] >= sends + is_pending;
    }));
    EXPECT_EQ(received_bytes_, length_bytes);
    EXPECT_TRUE(std::ranges::equal(room, sent));
  }

  static inline unsigned char last_ = 0;
  const JobSecret secret_;
  const std::string name_;
  std::thread processor_;
  std::atomic<int> status_ = -1;  ///< Of the processor. -1: it runs.
  std::vector<Driver> drivers_;
  std::array<int, 3> done_{}, failed_{};
  std::size_t received_bytes_ = 0;
  bool are_shared_ = false;  ///< Messages are in memory that their processes share.
  std::string warnings_;
  std::map<PeerId, std::string> cards_elsewhere_;  ///< Of clients in other processes.
};

}  // namespace ch3_offload
