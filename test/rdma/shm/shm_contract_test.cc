// The provider contract on the shm provider, in its configurations; then what only this provider meets:
// limits and refusals of the kernel.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <thread>

#include "rdma/provider_contract.h"
#include "rdma/shm/shm_world.h"

namespace {

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
Failure failing_poll;
int opened_to_all = 0;          // Calls of prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY).
long pretended_page_bytes = 0;  // 0: the kernel's.
Failure failing_copy;
std::function<void()> at_copy;  // Called before each process_vm_writev().
Failure failing_send;
Failure failing_watch;  // epoll_ctl() that adds.

template <class Function>
Function* real(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  // Of the library's own calls, which do not wait; the tests themselves use poll() too.
  if (timeout_ms == 0 && count == 1 && failing_poll.strikes()) return -1;
  static auto* const call = real<int(pollfd*, nfds_t, int)>("poll");
  return call(entries, count, timeout_ms);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  if (failing_send.strikes()) return -1;
  static auto* const call = real<ssize_t(int, const msghdr*, int)>("sendmsg");
  return call(socket, message, flags);
}

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD && failing_watch.strikes()) return -1;
  static auto* const call = real<int(int, int, int, epoll_event*)>("epoll_ctl");
  return call(epoll, operation, descriptor, event);
}

int prctl(int option, ...) noexcept {
  va_list list;
  va_start(list, option);
  unsigned long rest[4];
  for (unsigned long& argument : rest) argument = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_PTRACER) {
    opened_to_all += rest[0] == PR_SET_PTRACER_ANY;
    return 0;
  }
  static auto* const call = real<int(int, ...)>("prctl");
  return call(option, rest[0], rest[1], rest[2], rest[3]);
}

long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && pretended_page_bytes != 0) return pretended_page_bytes;
  static auto* const call = real<long(int)>("sysconf");
  return call(name);
}

ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                          unsigned long remote_count, unsigned long flags) noexcept {
  if (failing_copy.strikes()) return -1;
  if (at_copy) at_copy();
  using Call = ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  static auto* const call = real<Call>("process_vm_writev");
  return call(pid, local, local_count, remote, remote_count, flags);
}

}  // extern "C"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_world(std::size_t size, std::size_t ring_bytes, BulkMethod bulk) {
  ShmConfig config;
  config.ring_bytes = ring_bytes;
  config.bulk = bulk;
  return std::make_unique<ShmWorld>(size, config);
}
std::unique_ptr<ContractWorld> streaming(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kStream);
}
std::unique_ptr<ContractWorld> writing(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kCma);
}
std::unique_ptr<ContractWorld> smallest_ring(std::size_t size) {
  return make_world(size, kLeastRingBytes, BulkMethod::kCma);
}

const std::vector<ContractParam> kConfigurations = {
    {.name = "Streaming", .make = &streaming, .writes = false},
    {"Writing", &writing},
    {"SmallestRing", &smallest_ring}};
INSTANTIATE_PROVIDER_CONTRACT(Shm, kConfigurations);

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
      config.log = [](void* lines, const char* line) { *static_cast<std::string*>(lines) += line; };
      config.log_context = &log(self);
      providers_[index_of(self)] = make_shm(config);
      ASSERT_NE(providers_[index_of(self)], nullptr);
    }
  }

  std::uint64_t shortage_limit_ms = ShmConfig{}.shortage_limit_ms;
  void TearDown() override {
    failing_send = {};
    failing_watch = {};
    at_copy = {};
  }

  ShmProvider& at(PeerId peer) { return *providers_[index_of(peer)]; }
  RecordingSink& sink(PeerId peer) { return sinks_[index_of(peer)]; }
  std::string& log(PeerId peer) { return logs_[index_of(peer)]; }
  std::size_t poll(PeerId peer) { return at(peer).poll(sink(peer), 64); }
  void poll_for_ms(PeerId peer, int time_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(time_ms);
    while (std::chrono::steady_clock::now() < end) poll(peer);
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
  bool connect(PeerId from, PeerId to) { return at(from).connect(to, at(to).local_address()).ok(); }
  Status try_send(PeerId from, PeerId to) {
    std::span<std::byte> slot;
    const Status status = at(from).reserve(to, 8, slot);
    if (status == Status::kOk) at(from).commit(to, 8);
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
  std::unique_ptr<ShmProvider> providers_[2];
  RecordingSink sinks_[2];
  std::string logs_[2];
};

/// One write of 8 bytes within this program.
class SmallWrite {
 public:
  Status post(ShmProvider& from, PeerId to) {
    return from.write(to, source_, sizeof source_, {}, {reinterpret_cast<std::uintptr_t>(target_), {}},
                      Immediate{1}, WorkId{1});
  }

 private:
  std::byte source_[8] = {};
  std::byte target_[8] = {};
};

/// Takes all descriptors that the process may have but `left` ones.
class Shortage {
 public:
  explicit Shortage(int left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 256;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    for (FileDescriptor taken(::dup(0)); taken.valid(); taken = FileDescriptor(::dup(0)))
      taken_.push_back(std::move(taken));
    EXPECT_EQ(errno, EMFILE);
    for (int i = 0; i < left; ++i) taken_.pop_back();
  }
  ~Shortage() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_;
};

TEST_F(ShmProviderTest, PagesOf64KiBAreSupportedAndGreaterOnesRefused) {
  static_assert(kRingControlBytes % (64 << 10) == 0 && kLeastRingBytes % (64 << 10) == 0);
  pretended_page_bytes = 64 << 10;
  EXPECT_NE(make_shm({}), nullptr);
  pretended_page_bytes = 128 << 10;
  const Result<std::unique_ptr<ShmProvider>> refused = ShmProvider::create({});
  pretended_page_bytes = 0;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("pages of 131072 bytes"), std::string::npos);
}

TEST(BulkCopy, OpensTheProcessToItsPeersWhereYamaAsksForItOnly) {
  const std::string file = testing::TempDir() + "/ptrace_scope." + std::to_string(::getpid());
  const auto calls_at = [&](const char* scope) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    EXPECT_NE(out, nullptr);
    std::fputs(scope, out);
    std::fclose(out);
    opened_to_all = 0;
    let_peers_write(file.c_str());
    return opened_to_all;
  };
  EXPECT_EQ(calls_at("0\n"), 0);
  EXPECT_EQ(calls_at("1\n"), 1);
  EXPECT_EQ(calls_at("2\n"), 0);
  ::unlink(file.c_str());
  opened_to_all = 0;
  let_peers_write(file.c_str());
  EXPECT_EQ(opened_to_all, 0);
}

TEST_F(ShmProviderTest, AWriteToAPeerThatIsDyingFails) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_TRUE(connect(kB, kA));
  poll_for_ms(kB, 5);
  poll_for_ms(kA, 5);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  // Its end is seen first; what it had sent is delivered in small doses.
  SmallWrite write;
  std::size_t delivered = 0;
  while (sink(kA).count(RecordingSink::Kind::kPeerDown) == 0) {
    EXPECT_EQ(write.post(at(kA), kB), Status::kPeerFailed) << delivered;
    at(kA).arm();
    delivered += at(kA).poll(sink(kA), 10);
    at(kA).disarm();
  }
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 100u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kWriteDone), 0u);
}

TEST_F(ShmProviderTest, WhatSomebodySaidWhoIsDeadBeforeWeLookedIsDelivered) {
  ASSERT_TRUE(connect(kB, kA));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  EXPECT_TRUE(at(kA).end(kB));  // It still waits to be accepted.
  while (sink(kA).count(RecordingSink::Kind::kPeerDown) == 0) at(kA).poll(sink(kA), 10);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 100u);
  EXPECT_FALSE(at(kA).end(kB));
}

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
    ASSERT_EQ(receive_with_file(socket_, std::as_writable_bytes(std::span(&hello, 1)), file), Receipt::kMessage);
    memory_ = std::move(map_mirrored(file, kRingControlBytes, hello.ring_bytes).value());
  }
  RingControl& control() { return *reinterpret_cast<RingControl*>(memory_.address()); }

 private:
  ShmAddress address_;
  FileDescriptor listener_;
  FileDescriptor socket_;
  Mapping memory_;
};

class HandMadeSender {
 public:
  HandMadeSender(const std::string& to, PeerId self, PeerId receiver) {
    const FileDescriptor file = std::move(make_shared_file("test", kRingControlBytes + kLeastRingBytes).value());
    memory_ = std::move(map_mirrored(file, kRingControlBytes, kLeastRingBytes).value());
    socket_ = std::move(make_socket().value());
    EXPECT_EQ(connect_to(socket_, *ShmAddress::parse(to)).value(), ConnectProgress::kConnected);
    Hello hello;
    hello.sender = index_of(self);
    hello.receiver = index_of(receiver);
    hello.ring_bytes = kLeastRingBytes;
    hello.secret = test_secret();
    EXPECT_TRUE(send_with_file(socket_, std::as_bytes(std::span(&hello, 1)), file));
  }
  RingControl& control() { return *reinterpret_cast<RingControl*>(memory_.address()); }
  bool sees_the_end() const {
    pollfd entry{socket_.get(), POLLRDHUP, 0};
    return ::poll(&entry, 1, 1) == 1;
  }
  void die() { socket_.reset(); }

 private:
  Mapping memory_;
  FileDescriptor socket_;
};

/// Delivering the last messages of one peer shows that another one breaks the protocol: each end is told, once.
TEST_F(ShmProviderTest, AnEndThatBeginsWhileAnotherIsToldIsToldToo) {
  HandMadeReceiver hostile(at(kA).local_address());
  constexpr PeerId kHostile{2};
  ASSERT_TRUE(at(kA).connect(kHostile, hostile.address()).ok());
  hostile.take_connection();
  hostile.control().consumer_position = std::uint64_t{1} << 60;  // More than was ever sent.
  ASSERT_TRUE(connect(kB, kA));
  ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  sink(kA).reaction = [&](const RecordingSink::Event&) {
    std::span<std::byte> slot;
    while (at(kA).reserve(kHostile, 8, slot) == Status::kOk) at(kA).commit(kHostile, 8);
  };
  ASSERT_TRUE(at(kA).end(kB));
  poll_for_ms(kA, 5);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, kB), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, kHostile), 1u);
  EXPECT_EQ(sink(kA).events.back().status, Status::kProtocol);
}

TEST_F(ShmProviderTest, AnEndIsToldWhenThePeerCopiesNoMore) {
  for (const bool dies : {false, true}) {
    const PeerId peer{dies ? 3u : 2u};
    HandMadeSender sender(at(kA).local_address(), peer, kA);
    poll_for_ms(kA, 5);
    sender.control().producer_copying = 1;
    ASSERT_TRUE(at(kA).end(peer));
    poll_for_ms(kA, 5);
    EXPECT_TRUE(sender.sees_the_end());
    EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, peer), 0u) << "it may still write to our memory";
    EXPECT_FALSE(at(kA).arm());
    at(kA).disarm();
    if (dies)
      sender.die();
    else
      sender.control().producer_copying = 0;
    poll_for_ms(kA, 5);
    EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, peer), 1u);
  }
}

TEST_F(ShmProviderTest, WhoCopiesSaysSo) {
  HandMadeReceiver receiver(at(kA).local_address());
  constexpr PeerId kReceiver{2};
  ASSERT_TRUE(at(kA).connect(kReceiver, receiver.address()).ok());
  receiver.take_connection();
  std::vector<std::uint32_t> words;
  at_copy = [&] { words.push_back(receiver.control().producer_copying); };
  EXPECT_EQ(SmallWrite().post(at(kA), kReceiver), Status::kOk);
  EXPECT_EQ(words, std::vector<std::uint32_t>{1});
  EXPECT_EQ(receiver.control().producer_copying, 0u);
}

TEST_F(ShmProviderTest, ASignalDuringAWriteDoesNotLookLikeADeath) {
  ASSERT_TRUE(connect(kA, kB));
  failing_poll = {EINTR, 1};
  EXPECT_EQ(SmallWrite().post(at(kA), kB), Status::kOk);
  EXPECT_EQ(failing_poll.failed, 1);
}

TEST_F(ShmProviderTest, AWriteToAProcessThatEndsIsNoRefusalToWarnOf) {
  ASSERT_TRUE(connect(kA, kB));
  failing_copy = {ESRCH, 1};
  EXPECT_EQ(SmallWrite().post(at(kA), kB), Status::kUnsupported);
  EXPECT_EQ(log(kA), "");
}

TEST_F(ShmProviderTest, AWriteToMemoryThatCannotBeReachedIsRefusedAndNoMore) {
  ASSERT_TRUE(connect(kA, kB));
  for (int i = 0; i < 2; ++i) {
    std::byte source{};
    EXPECT_EQ(at(kA).write(kB, &source, 1, {}, {4096, {}}, Immediate{1}, WorkId{1}), Status::kUnsupported);
  }
  EXPECT_NE(log(kA).find("streamed copies"), std::string::npos) << log(kA);
  EXPECT_EQ(log(kA).find("streamed"), log(kA).rfind("streamed")) << "once";
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_TRUE(sink(kA).events.empty()) << "the connection stands";
}

TEST_F(ShmProviderTest, AHelloThatCannotBeSentIsSentLater) {
  for (const int error_number : {ETOOMANYREFS, ENOBUFS, ENOMEM}) {
    SetUp();
    sink(kB).events.clear();
    failing_send = {error_number, 2};
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_EQ(try_send(kA, kB), Status::kOk);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == 1; }));
    EXPECT_EQ(sink(kB).events[0].kind, RecordingSink::Kind::kMessage);
    EXPECT_EQ(failing_send.failed, 2);
  }
}

/// The receiver would take it for a death if the connection ended after the Hello.
TEST_F(ShmProviderTest, AConnectionThatCannotBeWatchedIsMadeLater) {
  for (const int error_number : {ENOMEM, ENOSPC}) {
    SetUp();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    failing_watch = {error_number, 2};
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_EQ(try_send(kA, kB), Status::kOk);
    failing_watch.times = std::min(failing_watch.times, 1);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == 1; }));
    EXPECT_EQ(sink(kB).events[0].kind, RecordingSink::Kind::kMessage);
    EXPECT_EQ(sink(kA).events.size(), 0u);
  }
}

/// Another thread polls while one sleeps: it reads the alarm, and is still short of something afterwards.
TEST_F(ShmProviderTest, NobodySleepsOverWhatIsStillShort) {
  ASSERT_TRUE(connect(kA, kB));
  failing_send = {ETOOMANYREFS, 1'000'000};
  ASSERT_TRUE(put_to_sleep(kB));
  failing_send = {};
  ASSERT_TRUE(is_readable(kB, kWaitMs));
  failing_watch = {ENOMEM, 1};
  EXPECT_EQ(poll(kB), 0u);
  EXPECT_EQ(failing_watch.failed, 1);
  EXPECT_TRUE(is_readable(kB, kWaitMs)) << "nobody tries again";
}

/// As above: the other thread reads the alarm of an end that cannot be told yet.
TEST_F(ShmProviderTest, NobodySleepsOverAnEndThatIsYetToBeTold) {
  HandMadeSender sender(at(kA).local_address(), PeerId{2}, kA);
  poll_for_ms(kA, 5);
  sender.control().producer_copying = 1;
  ASSERT_TRUE(put_to_sleep(kA));
  ASSERT_TRUE(at(kA).end(PeerId{2}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(is_readable(kA, kWaitMs)) << "nobody looks whether it still copies";
    EXPECT_EQ(poll(kA), 0u);
  }
  sender.control().producer_copying = 0;
  EXPECT_TRUE(is_readable(kA, kWaitMs));
  EXPECT_EQ(poll(kA), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, PeerId{2}), 1u);
}

TEST_F(ShmProviderTest, AWelcomeThatCannotBeSentIsSentLater) {
  ASSERT_TRUE(connect(kA, kB));
  std::size_t sent = 0;
  while (try_send(kA, kB) == Status::kOk) ++sent;
  ASSERT_TRUE(put_to_sleep(kA));
  failing_send = {ETOOMANYREFS, 1'000'000};
  ASSERT_TRUE(put_to_sleep(kB));
  EXPECT_EQ(sink(kB).events.size(), sent);
  EXPECT_FALSE(is_readable(kA, 0)) << "it was told of room before the Welcome";
  failing_send = {};
  ASSERT_TRUE(is_readable(kB, kWaitMs)) << "nobody tries again";
  at(kB).disarm();
  poll_for_ms(kB, 5);
  EXPECT_TRUE(is_readable(kA, kWaitMs));
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty());
  ASSERT_TRUE(put_to_sleep(kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  EXPECT_TRUE(is_readable(kB, kWaitMs));
}

TEST_F(ShmProviderTest, AConnectionWaitsUntilThereAreDescriptors) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  {
    const Shortage shortage(0);
    poll_for_ms(kB, 50);
    EXPECT_NE(log(kB).find("ulimit -n"), std::string::npos) << log(kB);
    ASSERT_TRUE(put_to_sleep(kB)) << "a connection that cannot be taken must not keep it awake";
  }
  ASSERT_TRUE(is_readable(kB, kWaitMs)) << "nobody looked whether there are descriptors again";
  at(kB).disarm();
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty()) << "a living peer was taken for dead";
}

TEST_F(ShmProviderTest, OneDescriptorIsEnoughForAConnection) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  const Shortage shortage(1);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty());
}

TEST_F(ShmProviderTest, AConnectionThatWaitsTooLongForADescriptorIsRefused) {
  shortage_limit_ms = 100;
  SetUp();
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  const Shortage shortage(0);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kA).events.empty() && !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kPeerDown), 1u) << "it may wait for that peer";
  EXPECT_EQ(sink(kB).events[0].status, Status::kUnreachable);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown), 1u);
  EXPECT_NE(log(kB).find("refused"), std::string::npos) << log(kB);
}

TEST_F(ShmProviderTest, TimeInWhichNobodyPolledIsNoShortage) {
  shortage_limit_ms = 400;
  SetUp();
  ASSERT_TRUE(connect(kA, kB));
  {
    const Shortage shortage(0);
    poll_for_ms(kB, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * shortage_limit_ms));
    poll_for_ms(kB, 20);
    EXPECT_TRUE(sink(kB).events.empty());
    EXPECT_EQ(log(kB).find("refused"), std::string::npos) << log(kB);
  }
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
}

TEST_F(ShmProviderTest, AWelcomeNeedsNoDescriptorThatIsLeft) {
  ASSERT_TRUE(connect(kA, kB));
  poll_for_ms(kB, 5);
  const Shortage shortage(0);
  poll_for_ms(kA, 50);
  EXPECT_NE(log(kA).find("ulimit -n"), std::string::npos) << log(kA);
  ASSERT_TRUE(put_to_sleep(kA));
  EXPECT_TRUE(sink(kA).events.empty()) << "a living peer was taken for one that breaks the protocol";
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return sink(kB).count(RecordingSink::Kind::kMessage) == 1; }));
  ASSERT_TRUE(put_to_sleep(kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  EXPECT_TRUE(is_readable(kB, kWaitMs));
}

}  // namespace
}  // namespace ch3_offload
