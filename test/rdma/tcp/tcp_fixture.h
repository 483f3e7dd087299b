// A fixture with several TCP providers in this process, their sinks and their endpoints.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "rdma/tcp/tcp_world.h"

namespace ch3_offload {

class TcpProviders : public testing::Test {
 protected:
  using Kind = RecordingSink::Kind;
  static constexpr std::size_t kBudget = 64;

  void make(std::size_t size, const TcpConfig& config = patient_tcp_config(),
            const std::function<void(std::size_t, TcpConfig&)>& adjust = {}) {
    world_.reset();
    world_ = std::make_unique<TcpWorld>(size, config, adjust);
    sinks_ = std::vector<RecordingSink>(size);
    endpoints_.clear();
  }
  TcpProvider& at(std::uint32_t process) { return world_->at(PeerId{process}); }
  RecordingSink& sink(std::uint32_t process) { return sinks_[process]; }
  std::size_t poll(std::uint32_t process) { return at(process).poll(sink(process), kBudget); }
  /// A poll that looks at the sockets, however long nothing has come.
  std::size_t poll_now(std::uint32_t process) {
    at(process).disarm();
    return poll(process);
  }
  std::size_t poll_all() {
    std::size_t found = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i)
      if (world_->alive(PeerId{i})) found += poll(i);
    return found;
  }
  /// Polls everybody until `done()`. False: not in a minute.
  template <class Condition>
  bool run_until(Condition done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (poll_all() == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  /// Long enough that something unwanted would have shown.
  void run_a_while() {
    for (int i = 0; i < 20; ++i) {
      poll_all();
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  void connect(std::uint32_t from, std::uint32_t to) { connect(from, to, at(to).local_address()); }
  void connect(std::uint32_t from, std::uint32_t to, std::string_view address) {
    const Result<Endpoint*> connected = endpoints_.connect(at(from), PeerId{from}, PeerId{to}, address);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
  }
  Endpoint& endpoint(std::uint32_t from, std::uint32_t to) { return endpoints_.of(PeerId{from}, PeerId{to}); }
  using Commit = void (Provider::*)(Endpoint&, std::size_t) noexcept;
  Status try_send(std::uint32_t from, std::uint32_t to, std::span<const std::byte> message,
                  Commit commit = &Provider::commit) {
    std::span<std::byte> slot;
    const Status status = at(from).reserve(endpoint(from, to), message.size(), slot);
    if (status != Status::kOk) return status;
    std::ranges::copy(message, slot.begin());
    (at(from).*commit)(endpoint(from, to), message.size());
    return Status::kOk;
  }
  /// Connects both, and waits until each has got a message of the other.
  void establish(std::uint32_t one, std::uint32_t other) {
    connect(one, other);
    connect(other, one);
    const std::size_t before_one = sink(one).count(Kind::kMessage, PeerId{other});
    const std::size_t before_other = sink(other).count(Kind::kMessage, PeerId{one});
    ASSERT_EQ(try_send(one, other, Pattern(one).bytes(10)), Status::kOk);
    ASSERT_EQ(try_send(other, one, Pattern(other).bytes(10)), Status::kOk);
    ASSERT_TRUE(run_until([&] {
      return sink(one).count(Kind::kMessage, PeerId{other}) > before_one &&
             sink(other).count(Kind::kMessage, PeerId{one}) > before_other;
    }));
  }
  /// Memory of a process that others may write to, unless `access` says otherwise.
  struct Region {
    std::vector<std::byte> bytes;
    MemoryRegion memory;
    std::uint64_t key() const { return static_cast<std::uint64_t>(memory.remote_key); }
    std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(bytes.data()); }
    RemoteMemory remote() const { return {address(), memory.remote_key}; }
  };
  Region make_region(std::uint32_t process, std::size_t length_bytes, Access access = Access::kWrite) {
    Region region{std::vector<std::byte>(length_bytes), {}};
    EXPECT_EQ(at(process).register_memory(region.bytes.data(), length_bytes, access, region.memory),
              Status::kOk);
    return region;
  }
  std::size_t lines_with(std::string_view text) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        world_->lines, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }

  std::unique_ptr<TcpWorld> world_;
  std::vector<RecordingSink> sinks_;
  Endpoints endpoints_;
};

}  // namespace ch3_offload
