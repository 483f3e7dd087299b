#include "portals/portals_world.h"

#include "rdma/monotonic_clock.h"

namespace ch3_offload::portals {

World world;

namespace {

std::uint64_t nothing() noexcept { return 0; }

bool driver_works_alone() noexcept { return world.driver == Driver::kThread; }

std::unique_ptr<TestPort> make_port(ProcessId self) {
  switch (world.driver) {
    case Driver::kHost: return make_engine_port(self, UserId{kUid}, TargetDriver::kHost);
    case Driver::kThread: return make_engine_port(self, UserId{kUid}, TargetDriver::kThread);
    case Driver::kOther: break;
  }
  return make_engine_port(self, UserId{kUid}, TargetDriver::kOther);
}

class FakeProcess final : public PortalsProcess {
 public:
  explicit FakeProcess(ProcessId self)
      : self_(self), works_alone_(driver_works_alone()), port_(make_port(self)) {
    world.port = port_.get();
    ++world.made;
  }
  ~FakeProcess() override { world.port = nullptr; }

  TargetPort& port() noexcept override { return *port_; }
  ProcessId self() const noexcept override { return self_; }
  UserId user() const noexcept override { return UserId{kUid}; }
  const ProcessLimits& limits() const noexcept override { return world.limits; }
  bool works_alone() const noexcept override { return works_alone_; }
  /// Sleeps soon, so that tests see that.
  WaitPolicy wait_policy() const noexcept override {
    return {20, 2, Cores{1, 1}, {monotonic_ns, nothing, nothing}};
  }
  void say_news() noexcept override {}

 private:
  const ProcessId self_;
  const bool works_alone_;
  const std::unique_ptr<TestPort> port_;
};

ProcessLimits default_limits() {
  ProcessLimits limits;
  limits.most_message_bytes = 1 << 20;
  limits.most_atomic_bytes = 4096;
  limits.most_fetch_atomic_bytes = 2048;
  limits.most_ordered_bytes = 8192;
  limits.most_volatile_bytes = 64;
  limits.most_triggered = 8;
  limits.binds_inaccessible = true;
  limits.orders_all = true;
  return limits;
}

}  // namespace

Result<std::unique_ptr<PortalsProcess>> make_portals_process(std::optional<std::uint32_t> pid) {
  if (world.failure != Status::kOk) return Error{world.failure, 0, "as the test wants it"};
  return std::unique_ptr<PortalsProcess>(
      std::make_unique<FakeProcess>(make_physical_id(kNid, pid.value_or(kPid))));
}

void PortalsTest::SetUp() {
  world = {};
  world.driver = GetParam();
  world.limits = default_limits();
  ASSERT_EQ(PtlInit(), PTL_OK);
}

void PortalsTest::TearDown() {
  PtlFini();
  EXPECT_EQ(world.port, nullptr) << "the process outlives its last interface";
}

ptl_handle_ni_t PortalsTest::open(unsigned int options) {
  ptl_handle_ni_t ni = PTL_INVALID_HANDLE;
  EXPECT_EQ(PtlNIInit(PTL_IFACE_DEFAULT, options, PTL_PID_ANY, nullptr, nullptr, &ni), PTL_OK);
  return ni;
}

ptl_handle_eq_t PortalsTest::make_queue(ptl_handle_ni_t ni, ptl_size_t events) {
  ptl_handle_eq_t eq = PTL_INVALID_HANDLE;
  EXPECT_EQ(PtlEQAlloc(ni, events, &eq), PTL_OK);
  return eq;
}

ptl_handle_ct_t PortalsTest::make_counter(ptl_handle_ni_t ni) {
  ptl_handle_ct_t ct = PTL_INVALID_HANDLE;
  EXPECT_EQ(PtlCTAlloc(ni, &ct), PTL_OK);
  return ct;
}

ptl_pt_index_t PortalsTest::make_table(ptl_handle_ni_t ni, ptl_handle_eq_t eq, unsigned int options) {
  ptl_pt_index_t index = PTL_PT_ANY;
  EXPECT_EQ(PtlPTAlloc(ni, options, eq, PTL_PT_ANY, &index), PTL_OK);
  return index;
}

ptl_handle_md_t PortalsTest::bind(ptl_handle_ni_t ni, void* start, ptl_size_t length, ptl_handle_eq_t eq,
                                  ptl_handle_ct_t ct, unsigned int options) {
  const ptl_md_t md{start, length, options, eq, ct};
  ptl_handle_md_t handle = PTL_INVALID_HANDLE;
  EXPECT_EQ(PtlMDBind(ni, &md, &handle), PTL_OK);
  return handle;
}

ptl_process_t PortalsTest::self() {
  ptl_process_t id{};
  id.phys.nid = kNid;
  id.phys.pid = kPid;
  return id;
}

ptl_me_t PortalsTest::match_entry(void* start, ptl_size_t length, unsigned int options) {
  ptl_me_t me{};
  me.start = start;
  me.length = length;
  me.ct_handle = PTL_CT_NONE;
  me.uid = PTL_UID_ANY;
  me.options = PTL_ME_OP_PUT | PTL_ME_OP_GET | options;
  me.match_id.phys.nid = PTL_NID_ANY;
  me.match_id.phys.pid = PTL_PID_ANY;
  return me;
}

ptl_le_t PortalsTest::list_entry(void* start, ptl_size_t length, unsigned int options) {
  return {start, length, PTL_CT_NONE, PTL_UID_ANY, PTL_LE_OP_PUT | PTL_LE_OP_GET | options};
}

ptl_event_t PortalsTest::next(ptl_handle_eq_t eq) {
  ptl_event_t event{};
  unsigned int which = 99;
  EXPECT_EQ(PtlEQPoll(&eq, 1, 10'000, &event, &which), PTL_OK);
  EXPECT_EQ(which, 0U);
  return event;
}

ptl_event_t PortalsTest::next(ptl_handle_eq_t eq, ptl_event_kind_t type) {
  const ptl_event_t event = next(eq);
  EXPECT_EQ(int{event.type}, int{type});
  return event;
}

void PortalsTest::expect_no_event(ptl_handle_eq_t eq) {
  world.port->settle();
  ptl_event_t event{};
  EXPECT_EQ(PtlEQGet(eq, &event), PTL_EQ_EMPTY) << "an event of type " << int{event.type};
}

ptl_ct_event_t PortalsTest::count_of(ptl_handle_ct_t ct) {
  ptl_ct_event_t value{};
  EXPECT_EQ(PtlCTGet(ct, &value), PTL_OK);
  return value;
}

ptl_ct_event_t PortalsTest::wait_for(ptl_handle_ct_t ct, ptl_size_t test) {
  ptl_ct_event_t value{};
  unsigned int which = 99;
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 10'000, &value, &which), PTL_OK);
  EXPECT_EQ(which, 0U);
  return value;
}

int PortalsTest::status_of(ptl_handle_ni_t ni, ptl_sr_index_t index) {
  ptl_sr_value_t value = -1;
  EXPECT_EQ(PtlNIStatus(ni, index, &value), PTL_OK);
  return value;
}

}  // namespace ch3_offload::portals
