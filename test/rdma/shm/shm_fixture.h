// Two shm providers in one program, whose kernel refuses what a test wants, and ends of rings by hand.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rdma/provider_contract.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {

/// Makes the next calls of one system call in this program fail, by taking its symbol's place.
struct Failure {
  int error_number = 0;
  int times = 0;   ///< So many calls more fail.
  int failed = 0;  ///< So many did.

  bool strikes() noexcept {
    if (times == 0) return false;
    --times;
    ++failed;
    errno = error_number;
    return true;
  }
};

extern Failure failing_poll;
extern Failure failing_copy;  // process_vm_writev().
extern Failure failing_read;  // process_vm_readv().
extern Failure failing_connect;
extern Failure failing_populate;  // madvise() that takes page faults.
extern Failure failing_send;
extern Failure failing_watch;          // epoll_ctl() that adds.
extern int opened_to_all;              // Calls of prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY).
extern long pretended_page_bytes;      // 0: the kernel's.
extern std::function<void()> at_copy;  // Called before each process_vm_writev().
extern std::function<void()> at_read;  // Called before each process_vm_readv().

/// Two processes whose log lines are kept.
class ShmProviderTest : public testing::Test {
 protected:
  static constexpr int kWaitMs = 60'000;

  void SetUp() override {
    for (const PeerId self : {kA, kB}) {
      ShmConfig config;
      config.self = self;
      config.job_secret = test_secret();
      config.bulk = BulkMethod::kCma;
      config.shortage_limit_ms = shortage_limit_ms;
      config.memory_bytes = memory_bytes;
      config.log = [](void* lines, LogScope scope, const char* line) {
        *static_cast<std::string*>(lines) +=
            (scope == LogScope::kNode ? "of the node: " : "") + std::string(line);
      };
      config.log_context = &log(self);
      providers_[index_of(self)] = make_shm(config);
      ASSERT_NE(providers_[index_of(self)], nullptr);
    }
  }

  std::uint64_t shortage_limit_ms = ShmConfig{}.shortage_limit_ms;
  std::size_t memory_bytes = ShmConfig{}.memory_bytes;
  void TearDown() override {
    failing_connect = {};
    failing_populate = {};
    failing_send = {};
    failing_watch = {};
    failing_read = {};
    at_copy = {};
    at_read = {};
  }

  ShmProvider& at(PeerId peer) { return *providers_[index_of(peer)]; }
  RecordingSink& sink(PeerId peer) { return sinks_[index_of(peer)]; }
  std::string& log(PeerId peer) { return logs_[index_of(peer)]; }
  std::size_t poll(PeerId peer) { return at(peer).poll(sink(peer), 64); }
  /// For as long, and so often that housekeeping has its turns where another process takes the time.
  void poll_for_ms(PeerId peer, int time_ms) {
    constexpr int kPollsPerMs = 256;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(time_ms);
    for (int polls = 0; polls < time_ms * kPollsPerMs || std::chrono::steady_clock::now() < end; ++polls)
      poll(peer);
  }
  template <class Condition>
  bool poll_both_until(Condition done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (!done() && std::chrono::steady_clock::now() < end) {
      poll(kA);
      poll(kB);
    }
    return done();
  }
  void kill(PeerId peer) { providers_[index_of(peer)].reset(); }
  /// Of A and B, the one with the smaller socket id (RULE ONE CONNECTION), and the other.
  PeerId smaller() { return socket_id(kA) < socket_id(kB) ? kA : kB; }
  PeerId greater() { return smaller() == kA ? kB : kA; }
  bool connect(PeerId from, PeerId to) { return connect(from, to, at(to).local_address()); }
  bool connect(PeerId from, PeerId to, const std::string& address) {
    return endpoints_.connect(at(from), from, to, address).ok();
  }
  /// REQUIRES: `from` has connected to `to`.
  Endpoint& endpoint(PeerId from, PeerId to) const { return endpoints_.of(from, to); }
  Status try_send(PeerId from, PeerId to) {
    std::span<std::byte> slot;
    const Status status = at(from).reserve(endpoint(from, to), 8, slot);
    if (status == Status::kOk) at(from).commit(endpoint(from, to), 8);
    return status;
  }
  bool is_readable(PeerId peer, int timeout_ms) {
    pollfd entry{at(peer).descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  /// Whether `peer` sleeps: nothing to do, and nothing that keeps its descriptor readable.
  bool put_to_sleep(PeerId peer) {
    for (int i = 0; i < 1000; ++i) {
      while (poll(peer) != 0) {
      }
      if (at(peer).arm() && poll(peer) == 0 && !is_readable(peer, 0)) return true;
      at(peer).disarm();
    }
    return false;
  }

 private:
  std::array<std::uint64_t, 2> socket_id(PeerId peer) {
    return ShmAddress::parse(at(peer).local_address())->socket_id;
  }

  std::unique_ptr<ShmProvider> providers_[2];
  Endpoints endpoints_;
  RecordingSink sinks_[2];
  std::string logs_[2];
};

/// One write of 8 bytes within this program.
class SmallWrite {
 public:
  Status post(ShmProvider& from, Endpoint& to) {
    return from.write(to, source_, sizeof source_, {}, {reinterpret_cast<std::uintptr_t>(target_), {}},
                      Immediate{1}, WorkId{1});
  }

 private:
  std::byte source_[8] = {};
  std::byte target_[8] = {};
};

/// One end of a ring that a test holds in its own hands.
class HandMadeReceiver {
 public:
  explicit HandMadeReceiver(const std::string& neighbour) {
    address_.node_id = ShmAddress::parse(neighbour)->node_id;
    address_.socket_id = {static_cast<std::uint64_t>(::getpid()), reinterpret_cast<std::uintptr_t>(this)};
    listener_ = std::move(listen_at(address_).value());
  }
  std::string address() const { return address_.to_string(); }
  void take_connection() {
    int error_number = 0;
    socket_ = accept_from(listener_, error_number);
    Hello hello;
    FileDescriptor file;
    ASSERT_EQ(receive_with_files(socket_, std::as_writable_bytes(std::span(&hello, 1)), std::span(&file, 1)),
              Receipt::kMessage);
    memory_ = std::move(map_ring_file(file, hello.ring_bytes).value());
  }
  RingControl& control() { return *reinterpret_cast<RingControl*>(ring_in(memory_)); }

 private:
  ShmAddress address_;
  FileDescriptor listener_;
  FileDescriptor socket_;
  Mapping memory_;
};

class HandMadeSender {
 public:
  /// `names`: those that the receiver has for the two. Nothing: they have common numbers.
  HandMadeSender(const std::string& to, PeerId self, PeerId receiver, const ShmAddress& listens_at = {},
                 const std::optional<PeerNames>& names = {}) {
    const FileDescriptor file =
        std::move(make_shared_file("test", ring_file_bytes(kLeastRingBytes)).value());
    memory_ = std::move(map_ring_file(file, kLeastRingBytes).value());
    socket_ = std::move(make_socket().value());
    EXPECT_EQ(connect_to(socket_, *ShmAddress::parse(to)).value(), ConnectProgress::kConnected);
    Hello hello;
    hello.sender = index_of(self);
    hello.receiver = index_of(receiver);
    hello.own = index_of(names ? names->own : self);
    hello.known_as = index_of(names ? names->known_as : receiver);
    hello.ring_bytes = kLeastRingBytes;
    hello.secret = test_secret();
    hello.socket_id = listens_at.socket_id;
    const int number = file.get();
    EXPECT_TRUE(send_with_files(socket_, std::as_bytes(std::span(&hello, 1)), std::span(&number, 1)));
  }
  RingControl& control() { return *reinterpret_cast<RingControl*>(ring_in(memory_)); }
  /// Of an empty ring.
  RingProducer ring() { return {ring_in(memory_), kLeastRingBytes, kLeastRingBytes}; }
  bool sees_the_end() const {
    pollfd entry{socket_.get(), POLLRDHUP, 0};
    return ::poll(&entry, 1, 1) == 1;
  }
  void die() { socket_.reset(); }
  /// Returns whether the answer has come. bits() are known then.
  bool take_welcome() {
    Welcome welcome;
    FileDescriptor files[2];
    if (receive_with_files(socket_, std::as_writable_bytes(std::span(&welcome, 1)), files) !=
        Receipt::kMessage)
      return false;
    bits_ = std::move(map_shared(files[1], kActivityBytes, MapAccess::kReadWrite).value());
    return true;
  }
  std::atomic<std::uint64_t>* bits() {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(bits_.address());
  }

 private:
  Mapping memory_;
  Mapping bits_;
  FileDescriptor socket_;
};

}  // namespace ch3_offload
