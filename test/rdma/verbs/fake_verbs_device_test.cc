// The fake verbs device: devices, limits, objects, and the states of a queue pair.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/verbs/fake_verbs_world.h"

namespace ch3_offload::fake_verbs {
namespace {

class FakeVerbsDevice : public FakeVerbs {
 protected:
  static ibv_context* open(int index = 0) {
    ibv_device** const devices = ibv_get_device_list(nullptr);
    ibv_context* const context = ibv_open_device(devices[index]);
    const int error = errno;
    ibv_free_device_list(devices);
    errno = error;
    return context;
  }
};

TEST_F(FakeVerbsDevice, DefaultIsOneRocePort) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(devices[1], nullptr);
  EXPECT_STREQ(ibv_get_device_name(devices[0]), "fake0");
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ASSERT_NE(context, nullptr);
  EXPECT_STREQ(context->device->name, "fake0");
  ibv_device_attr device{};
  EXPECT_EQ(ibv_query_device(context, &device), 0);
  EXPECT_EQ(device.phys_port_cnt, 1);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.gid_tbl_len, 2);
  EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, unsigned{IBV_GID_TYPE_ROCE_V2});
  const ibv_gid expected = ipv4_gid(127, 0, 0, 1);
  EXPECT_EQ(std::memcmp(entry.gid.raw, expected.raw, sizeof expected.raw), 0);
  std::array<ibv_gid_entry, 8> table{};
  EXPECT_EQ(ibv_query_gid_table(context, table.data(), table.size(), 0), 2);
  EXPECT_EQ(table[0].gid_type, unsigned{IBV_GID_TYPE_ROCE_V1});
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(FakeVerbsDevice, InfiniBandPortsAndEmptyGidRows) {
  PortConfig port = infiniband_port(9);
  port.gids.insert(port.gids.begin(), Gid{});
  Config config;
  config.devices = {{.name = "ib0", .ports = {port}}};
  reset(config);
  ibv_context* const context = open();
  ibv_port_attr attributes{};
  EXPECT_EQ(ibv_query_port(context, 1, &attributes), 0);
  EXPECT_EQ(attributes.lid, 9);
  EXPECT_EQ(attributes.link_layer, IBV_LINK_LAYER_INFINIBAND);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid.raw[0], 0xFE);
  EXPECT_EQ(ibv_query_gid_table(context, &entry, 1, 0), 1);
  EXPECT_EQ(entry.gid_index, 1u);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(FakeVerbsDevice, NoneAndClosedDoors) {
  reset({.devices = {}});
  int count = -1;
  ibv_device** const none = ibv_get_device_list(&count);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(none[0], nullptr);
  ibv_free_device_list(none);
  reset({.list_error = ENOSYS});
  EXPECT_EQ(ibv_get_device_list(&count), nullptr);
  EXPECT_EQ(errno, ENOSYS);
  reset({.devices = {{.open_error = EACCES}}});
  EXPECT_EQ(open(), nullptr);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(FakeVerbsDevice, LimitsOfObjectsAndMemory) {
  reset({.devices = {{.max_completion_queues = 1,
                      .max_receive_queues = 1,
                      .max_queue_pairs = 1,
                      .registered_bytes_per_context =
                          ConnectionEnd::kBufferBytes + ConnectionEnd::kSlotBytes * 256 + 10}}});
  one_ = std::make_unique<ConnectionEnd>();
  errno = 0;
  EXPECT_EQ(ibv_create_cq(one_->context, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_srq_init_attr shared{};
  shared.attr.max_wr = 1;
  errno = 0;
  EXPECT_EQ(ibv_create_srq(one_->domain, &shared), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = one_->queue;
  init.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(one_->domain, &init), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  char memory[11];
  const int access = IBV_ACCESS_LOCAL_WRITE;  // Not a constant to the macro, perhaps.
  EXPECT_EQ(ibv_reg_mr(one_->domain, memory, 11, access), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* const region = ibv_reg_mr(one_->domain, memory, 10, access | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->rkey, 0u);
  EXPECT_NE(region->lkey, 0u);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(FakeVerbsDevice, RegistrationLooksAtFlagsAndPages) {
  one_ = std::make_unique<ConnectionEnd>();
  char memory[64];
  EXPECT_EQ(ibv_reg_mr(one_->domain, memory, 64, int{IBV_ACCESS_REMOTE_WRITE}), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(one_->domain, memory, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  void* const pages = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ibv_mr* const region = ibv_reg_mr(one_->domain, pages, 8192, 0);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  ::munmap(pages, 8192);
}

TEST_F(FakeVerbsDevice, RegistrationRefusesPagesThatItCannotReach) {
  one_ = std::make_unique<ConnectionEnd>();
  void* const pages = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  if (::madvise(pages, 8192, MADV_POPULATE_WRITE) != 0 && errno == EINVAL) {
    ::munmap(pages, 8192);
    GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE (Linux 5.14)";
  }
  EXPECT_EQ(ibv_reg_mr(one_->domain, pages, 8192, ConnectionEnd::kLocal), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ::munmap(pages, 8192);
  EXPECT_EQ(ibv_reg_mr(one_->domain, pages, 8192, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(FakeVerbsDevice, ParentsOutliveTheirChildren) {
  one_ = std::make_unique<ConnectionEnd>();
  EXPECT_EQ(ibv_destroy_cq(one_->queue), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(one_->shared), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(one_->channel), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(one_->domain), EBUSY);
  EXPECT_EQ(ibv_close_device(one_->context), -1);
  EXPECT_EQ(violations().size(), 5u);
  expected_violations_ = violations();
  EXPECT_FALSE(leaks().none());
}

TEST_F(FakeVerbsDevice, QueuePairStatesAreStrict) {
  one_ = std::make_unique<ConnectionEnd>();
  EXPECT_EQ(one_->state(), IBV_QPS_RESET);
  EXPECT_EQ(one_->post({.id = 1}), EINVAL);
  EXPECT_EQ(one_->ready_to_receive(*one_), EINVAL);  // Not from RESET.
  EXPECT_EQ(one_->ready_to_send(), EINVAL);
  EXPECT_EQ(one_->enter(IBV_QPS_INIT), EINVAL);  // Not without its attributes.
  one_->initialize();
  EXPECT_EQ(one_->post({.id = 1}), EINVAL);
  EXPECT_EQ(one_->enter(IBV_QPS_RTR), EINVAL);
  EXPECT_EQ(one_->ready_to_send(), EINVAL);
  EXPECT_EQ(one_->ready_to_receive(*one_), 0);
  EXPECT_EQ(one_->post({.id = 1}), EINVAL);
  EXPECT_EQ(one_->enter(IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(one_->ready_to_send(), 0);
  EXPECT_EQ(one_->pair->state, IBV_QPS_RTS);
  EXPECT_EQ(one_->enter(IBV_QPS_ERR), 0);
  EXPECT_EQ(one_->ready_to_send(), EINVAL);
  EXPECT_EQ(one_->enter(IBV_QPS_RESET), 0);
  one_->connect(*one_);
}

TEST_F(FakeVerbsDevice, RoceNeedsAGlobalRouteAndAValidGid) {
  one_ = std::make_unique<ConnectionEnd>();
  one_->initialize();
  ibv_qp_attr values{};
  values.qp_state = IBV_QPS_RTR;
  values.path_mtu = IBV_MTU_1024;
  values.ah_attr.dlid = 1;
  values.ah_attr.port_num = 1;
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(ibv_modify_qp(one_->pair, &values, mask), EINVAL);
  values.ah_attr.is_global = 1;
  values.ah_attr.grh.sgid_index = 2;
  EXPECT_EQ(ibv_modify_qp(one_->pair, &values, mask), EINVAL);
  values.ah_attr.grh.sgid_index = 1;
  values.ah_attr.grh.dgid = ipv4_gid(192, 0, 2, 1);
  adjust([](Config& config) { config.unresolved_error = ETIMEDOUT; });
  EXPECT_EQ(ibv_modify_qp(one_->pair, &values, mask), ETIMEDOUT);
  adjust([](Config& config) { config.unresolved_error = 0; });
  EXPECT_EQ(ibv_modify_qp(one_->pair, &values, mask), 0);
}

TEST_F(FakeVerbsDevice, PostChecksWhatItCan) {
  connect({.inline_bytes = 64});
  EXPECT_EQ(one_->post({.length = 65, .flags = IBV_SEND_INLINE}), EINVAL);
  EXPECT_EQ(one_->post({.length = 64, .flags = IBV_SEND_INLINE}), 0);
  EXPECT_EQ(one_->post({.opcode = IBV_WR_RDMA_READ}), EINVAL);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(one_->post_receive(i), 0);
  EXPECT_EQ(one_->post_receive(16), ENOMEM);
}

TEST_F(FakeVerbsDevice, NumbersAreUsedAgainInASmallRange) {
  reset({.devices = {{.first_queue_pair_number = 100, .queue_pair_numbers = 2}}});
  one_ = std::make_unique<ConnectionEnd>();
  EXPECT_EQ(one_->pair->qp_num, 100u);
  for (const std::uint32_t expected : {101u, 100u, 101u}) {
    ibv_destroy_qp(one_->pair);
    one_->make_pair();
    EXPECT_EQ(one_->pair->qp_num, expected);
  }
  const std::vector<QueuePairInfo> all = queue_pairs();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].number, 101u);
  EXPECT_EQ(all[0].device, "fake0");
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
