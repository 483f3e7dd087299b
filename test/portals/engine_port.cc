#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "nic/target_ports_world.h"
#include "portals/test_port.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload::portals {

namespace {

class EnginePort final : public TestPort {
 public:
  EnginePort(ProcessId self, UserId user, TargetDriver driver)
      : works_alone_(driver == TargetDriver::kThread), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    EngineConfig config;
    config.self = PeerId{0};
    config.senders = 1;
    config.first_book_peer = PeerId{0};
    config.self_copy_bytes = kOneTurnBytes;
    if (works_alone_) {
      shm_ = std::make_unique<ShmWorld>(1, ShmConfig{});
      auto made = std::make_unique<ThreadSide>(shm_->at(PeerId{0}), config);
      made->meet(0, {{self, user, made->driver->card()}});
      side_ = std::move(made);
    } else {
      network_ = std::make_unique<FakeNetwork>(FakeConfig{});
      provider_ = network_->make_provider(PeerId{0});
      std::unique_ptr<FakeSide> made;
      if (driver == TargetDriver::kOther) {
        other_ = std::make_unique<OtherMemory>(0, 1);
        made = std::make_unique<SteppedSide>(*provider_, config, other_.get());
      } else {
        made = std::make_unique<FakeSide>(*provider_, config);
      }
      made->meet(0, {{self, user, made->driver->card()}});
      side_ = std::move(made);
    }
    const auto theirs = side_->port().descriptors();
    descriptors_.assign(theirs.begin(), theirs.end());
    descriptors_.push_back(bell_.get());
  }

  std::shared_ptr<ToldMemory> told_memory() noexcept override { return port().told_memory(); }

  void hold() override {
    const Guard guard(mutex_);
    is_held_ = true;
  }
  void release() override {
    const Guard guard(mutex_);
    is_held_ = false;
    for (const auto& [process, request] : std::exchange(held_, {}))
      EXPECT_EQ(port().request(process, request), Status::kOk);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof one);
  }
  void settle() override {
    // Nobody can see what the thread has begun. It answers each question between two of its turns. So it has
    // had turns, even on a busy machine.
    TargetCommand question;
    question.kind = TargetCommandKind::kFreeTable;
    question.interface = kTargetInterfaces - 1;
    question.table = UINT32_MAX;  // There is none.
    for (int quiet = 0; quiet < (works_alone_ ? 50 : 2); ++quiet) {
      while (progress() > 0) quiet = 0;
      if (!works_alone_) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      static_cast<void>(ask(question, {}));
    }
  }
  bool is_armed() override {
    const Guard guard(mutex_);
    return is_armed_;
  }
  unsigned armings() override {
    const Guard guard(mutex_);
    return armings_;
  }

  TargetAnswer ask(const TargetCommand& question, std::span<const std::byte> more) noexcept override {
    const Guard guard(mutex_);
    if (question.kind == TargetCommandKind::kClose)
      std::erase_if(held_, [&](const Held& one) { return one.second.interface == question.interface; });
    return port().ask(question, more);
  }
  Status request(ProcessId process, const TargetRequest& request) noexcept override {
    const Guard guard(mutex_);
    if (!is_held_) return port().request(process, request);
    held_.emplace_back(process, request);
    return Status::kOk;
  }
  std::size_t progress() noexcept override {
    const Guard guard(mutex_);
    const bool moved = network_ != nullptr && network_->advance();
    if (works_alone_) return port().progress();
    return side_->step() || moved ? 1 : 0;
  }
  bool idle() const noexcept override {
    const Guard guard(mutex_);
    return side_->port().idle();
  }
  bool arm() noexcept override {
    const Guard guard(mutex_);
    if (!port().arm()) return false;
    is_armed_ = true;
    ++armings_;
    return true;
  }
  void disarm() noexcept override {
    const Guard guard(mutex_);
    port().disarm();
    is_armed_ = false;
    std::uint64_t rings;
    [[maybe_unused]] const ssize_t drained = read(bell_.get(), &rings, sizeof rings);
  }
  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  std::uint64_t next_due_ns() const noexcept override {
    const Guard guard(mutex_);
    return side_->port().next_due_ns();
  }

 private:
  using Guard = std::lock_guard<std::recursive_mutex>;
  using Held = std::pair<ProcessId, TargetRequest>;

  TargetPort& port() { return side_->port(); }

  const bool works_alone_;
  mutable std::recursive_mutex mutex_;  ///< Tests and the library are two threads of one client.
  FileDescriptor bell_;
  std::unique_ptr<ShmWorld> shm_;
  std::unique_ptr<FakeNetwork> network_;
  std::unique_ptr<FakeProvider> provider_;
  std::unique_ptr<OtherMemory> other_;  ///< Null: the processor is in this process.
  std::unique_ptr<TargetSide> side_;
  std::vector<int> descriptors_;
  std::vector<Held> held_;
  bool is_held_ = false;
  bool is_armed_ = false;
  unsigned armings_ = 0;
};

}  // namespace

std::unique_ptr<TestPort> make_engine_port(ProcessId self, UserId user, TargetDriver driver) {
  return std::make_unique<EnginePort>(self, user, driver);
}

}  // namespace ch3_offload::portals
