// Providers on devices that have little, refuse something, or are not there.

#include "rdma/verbs/verbs_provider.h"

#include <cerrno>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

class VerbsSetUp : public VerbsProviders {
 protected:
  static std::string failure(const VerbsConfig& config = {}, Status expected = Status::kUnsupported) {
    Result<std::unique_ptr<VerbsProvider>> provider = VerbsProvider::create(config);
    if (provider.ok()) {
      ADD_FAILURE() << "it was made";
      return "";
    }
    EXPECT_EQ(provider.error().status, expected) << status_name(provider.error().status);
    EXPECT_EQ(provider.error().message.find('\n'), std::string::npos);
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
    return provider.error().message;
  }
  static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  /// Messages and writes both ways among four.
  void run_traffic(std::size_t most_write_bytes = 50'000) {
    SeededRandom random(3);
    Traffic traffic(*world_, 200, 10, most_write_bytes);
    for (std::uint32_t from = 0; from < world_->size(); ++from)
      for (std::uint32_t to = 0; to < world_->size(); ++to)
        if (from != to) traffic.add(PeerId{from}, PeerId{to});
    ASSERT_TRUE(traffic.run(random, {}));
  }
};

TEST_F(VerbsSetUp, SaysWhyThereIsNoPort) {
  fake_verbs::Config fake;
  fake.devices.clear();
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "no usable RDMA port (no RDMA device; is the kernel's driver loaded?)"));
  fake = {};
  fake.list_error = ENOSYS;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "no RDMA device"));
  fake = {};
  fake.devices[0].ports[0].state = IBV_PORT_DOWN;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "no usable RDMA port: fake0:1: the port is down"));
  fake = {};
  fake.devices[0].open_error = EACCES;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "/dev/infiniband/uverbs"));
  fake_verbs::reset({});
  VerbsConfig config;
  config.device = "mlx5_0";
  EXPECT_TRUE(contains(failure(config), "no RDMA device is called 'mlx5_0': there is fake0"));
  config = {};
  config.interface = "eth77";
  EXPECT_TRUE(contains(failure(config), "'eth77' matches no network interface"));
}

TEST_F(VerbsSetUp, EveryCallThatFailsIsReportedAndLeavesNothing) {
  struct Case {
    const char* call;
    unsigned nth;
    const char* part;
  };
  const Case cases[] = {
      {"ibv_alloc_pd", 1, "protection domain"},
      {"ibv_create_comp_channel", 1, "completion channel"},
      {"ibv_create_srq", 1, "shared receive queue"},
      {"ibv_create_cq", 1, "completion queue"},
      {"ibv_create_qp", 1, "queue pair"},
      {"ibv_modify_qp", 1, "queue pair"},
      {"ibv_reg_mr", 1, "registering"},
      {"ibv_reg_mr", 2, "registering"},
      {"ibv_post_srq_recv", 1, "posting a receive"},
      {"ibv_open_device", 2, "cannot be opened"},
  };
  for (const Case& one : cases)
    for (const int error : {EIO, ENOMEM}) {
      fake_verbs::reset({});
      fake_verbs::fail_call(one.call, one.nth, error, 100);
      const bool registers = std::string_view(one.call) == "ibv_reg_mr";
      const bool opens = std::string_view(one.call) == "ibv_open_device";
      const std::string text =
          failure({}, registers || (error == ENOMEM && !opens) ? Status::kNoMemory : Status::kDeviceFailed);
      EXPECT_TRUE(contains(text, one.part)) << one.call << ": " << text;
      EXPECT_TRUE(contains(text, error == EIO ? "Input/output error" : "Cannot allocate memory")) << text;
      EXPECT_TRUE(text.starts_with("verbs: ")) << text;
    }
}

TEST_F(VerbsSetUp, TooLittleMemoryThatMayBeLockedIsExplained) {
  fake_verbs::Config fake;
  fake.devices[0].registered_bytes_per_context = 20'000;
  fake_verbs::reset(fake);
  const std::string text = failure({}, Status::kNoMemory);
  EXPECT_TRUE(contains(text, "registering 524288 bytes failed")) << text;
}

TEST_F(VerbsSetUp, ADeviceWithLittleServes) {
  fake_verbs::Config fake;
  fake.devices[0].max_srq_work_requests = 100;
  fake.devices[0].max_completions = 64 + 4 * 65 + 10;
  fake.devices[0].max_inline_bytes = 0;
  fake.devices[0].max_queue_pairs = 100;
  fake.devices[0].ports[0].max_message_bytes = 8192;
  fake.devices[0].ports[0].active_mtu = IBV_MTU_256;
  make(4, {}, fake);
  run_traffic();
  EXPECT_EQ(fake_verbs::counters().inline_sends, 0u);
}

TEST_F(VerbsSetUp, ADeviceWithTooShortSendQueuesIsRefused) {
  fake_verbs::Config fake;
  fake.devices[0].max_work_requests = 32;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "fake0 has queue pairs of 32 sends; 66 are needed"));
}

TEST_F(VerbsSetUp, APortThatTakesNoWholeSlotIsRefused) {
  fake_verbs::Config fake;
  fake.devices[0].ports[0].max_message_bytes = 4096;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(), "fake0 sends 4096 bytes at most; slots have 8192"));
}

/// Halved, the receive queue is no multiple of a slab.
TEST_F(VerbsSetUp, AReceiveQueueThatHadToBeHalvedIsNotOverfilled) {
  VerbsConfig config;
  config.rail.most_receive_slots = 192;
  config.rail.slot_bytes = 512;
  fake_verbs::reset({});
  fake_verbs::fail_call("ibv_create_srq", 1, ENOMEM);
  VerbsConfig first = config;
  first.job_secret = verbs_test_secret();
  const std::unique_ptr<VerbsProvider> provider = make_verbs(first);
  ASSERT_NE(provider, nullptr);
  EXPECT_LE(provider->figures().registered_slot_bytes, 2u * 64 * 512);
  provider->abandon();
}

TEST_F(VerbsSetUp, InfiniBandIsRoutedByLid) {
  fake_verbs::Config fake;
  fake.devices[0].ports = {fake_verbs::infiniband_port(9)};
  VerbsConfig config;
  config.interface = "lo";
  EXPECT_TRUE(contains(failure(config), "'lo' stands for a loopback address"));
  config.loopback_serves = true;
  make(4, config, fake);
  EXPECT_FALSE(at(0).port().ethernet);
  EXPECT_TRUE(at(0).local_address().starts_with("verbs:4/i/127.0.0.1/")) << at(0).local_address();
  EXPECT_TRUE(at(0).local_address().find("/fe80000000000000/") != std::string::npos);
  run_traffic();
  EXPECT_FALSE(at(0).reaches("verbs:4/r/127.0.0.1/9/8192/0000000000000000/0123456789abcdef"));
  EXPECT_FALSE(at(0).reaches("verbs:4/i/127.0.0.1/9/8192/0000000000000000/0123456789abcdef"));
  const Result<Endpoint*> other =
      at(0).connect(PeerId{9}, "verbs:4/r/127.0.0.1/9/8192/0000000000000000/0123456789abcdef");
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.error().message, "another fabric"));
}

TEST_F(VerbsSetUp, RegistrationsThatAreRefusedAreNoError) {
  make(2);
  std::vector<std::byte> memory(100);
  MemoryRegion region;
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM);
  EXPECT_EQ(at(0).register_memory(memory.data(), memory.size(), Access::kWrite, region), Status::kNoMemory);
  EXPECT_EQ(at(0).figures().registrations, 0u);
  ASSERT_EQ(at(0).register_memory(memory.data(), memory.size(), Access::kWrite, region), Status::kOk);
  EXPECT_EQ(at(0).figures().registrations, 1u);
  at(0).deregister_memory(region);
  EXPECT_EQ(at(0).figures().registrations, 0u);
}

TEST_F(VerbsSetUp, MemoryIsPinnedUnlessTheDeviceFaultsPagesAndIsAskedTo) {
  std::vector<std::byte> memory(100'000);
  for (const bool can : {false, true})
    for (const bool wanted : {false, true}) {
      fake_verbs::Config fake;
      fake.devices[0].faults_pages = can;
      fake.devices[0].registered_bytes_per_context = 2u * 64 * 8192;  // The slots'.
      VerbsConfig config;
      config.on_demand = wanted;
      make(2, config, fake);
      const Capabilities& capabilities = at(0).capabilities();
      EXPECT_EQ(capabilities.on_demand, can && wanted);
      EXPECT_EQ(capabilities.registrations, can && wanted ? 0u : 1u);
      EXPECT_EQ(logged("cannot fault pages in"), wanted && !can);
      MemoryRegion region;
      const Status status = at(0).register_memory(memory.data(), memory.size(), Access::kWrite, region);
      EXPECT_EQ(status, can && wanted ? Status::kOk : Status::kNoMemory);
      if (status == Status::kOk) at(0).deregister_memory(region);
    }
}

TEST_F(VerbsSetUp, ProcessesOfANodeShareHalfOfTheDevicesRegions) {
  fake_verbs::Config fake;
  fake.devices[0].max_regions = 8000;
  VerbsConfig config;
  config.processes_on_node = 40;
  make(1, config, fake);
  EXPECT_EQ(at(0).capabilities().most_regions, 100u);
  config.processes_on_node = 8000;
  make(1, config, fake);
  EXPECT_EQ(at(0).capabilities().most_regions, 1u);
}

TEST_F(VerbsSetUp, ProcessesOfANodeHaveCompletionVectorsInTurn) {
  fake_verbs::Config fake;
  fake.devices[0].completion_vectors = 3;
  VerbsConfig config;
  for (const int number : {0, 1, 2, 3, 4}) {
    config.number_on_node = static_cast<std::size_t>(number);
    make(1, config, fake);
    EXPECT_EQ(fake_verbs::completion_vectors(), std::vector<int>{number % 3});
  }
}

TEST_F(VerbsSetUp, SlabsThatAreRefusedAreMissedByNobody) {
  VerbsConfig config;
  config.rail.slot_bytes = 512;
  make(4, config);
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM, 1'000'000);
  for (std::uint32_t from = 1; from < 4; ++from) establish(from, 0);
  for (int round = 0; round < 50; ++round) {
    for (std::uint32_t from = 1; from < 4; ++from)
      while (try_send(from, 0, Pattern(1).bytes(100)) == Status::kOk) {
      }
    poll_all();
  }
  fake_verbs::fail_call("ibv_reg_mr", 1, 0, 0);
  run_traffic();
}

TEST_F(VerbsSetUp, IfTheBestPortCannotBeOpenedTheNextOneIs) {
  fake_verbs::Config fake = fake_verbs::two_rails();
  fake.devices[0].max_receive_queues = 0;
  fake_verbs::reset(fake);
  VerbsConfig config;
  config.most_rails = 1;
  config.interface = "lo";
  config.loopback_serves = true;
  static std::string said;
  said.clear();
  config.log = [](void*, LogScope, const char* line) { said += std::string(line) + "\n"; };
  if (const auto provider = make_verbs_provider(config); !provider.ok()) FAIL() << provider.error().message;
  EXPECT_TRUE(contains(said, "fake0")) << said;
  EXPECT_TRUE(contains(said, "; trying the next best port")) << said;
  // Without any, the best one's words count.
  fake.devices[1].max_receive_queues = 0;
  fake_verbs::reset(fake);
  EXPECT_TRUE(contains(failure(config), "fake0 has no shared receive queues")) << said;
}

}  // namespace
}  // namespace ch3_offload
