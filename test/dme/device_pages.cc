#include "dme/device_pages.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "rdma/verbs/devices/port_selection.h"

namespace ch3_offload {

namespace {

constexpr std::size_t kMostBytes = 64 * 1024;

}  // namespace

Result<std::unique_ptr<DevicePages>> DevicePages::open(std::string_view device) {
  Result<VerbsPorts> ports = survey_verbs_ports(device);
  if (!ports.ok()) return ports.error();
  if (ports.value().usable.empty()) return Error{Status::kUnsupported, 0, "no usable RDMA port"};
  RailConfig config;
  config.send_queue_depth = 16;
  Result<std::unique_ptr<Rail>> rail = Rail::open(ports.value().usable.front(), config);
  if (!rail.ok()) return rail.error();
  std::unique_ptr<DevicePages> pages(new DevicePages(std::move(rail.value())));
  QueuePair* const ends[] = {&pages->sender_, &pages->receiver_};
  for (QueuePair* const end : ends) {
    Result<QueuePair> made = pages->rail_->make_queue_pair(pages->peer_.main);
    if (!made.ok()) return made.error();
    *end = std::move(made.value());
  }
  for (int i = 0; i < 2; ++i) {
    const VerbsPort& port = pages->rail_->port();
    RemoteQueuePair other;
    other.number = (*ends[1 - i])->qp_num;
    other.lid = port.lid;
    other.mtu = port.mtu;
    other.gid = port.gid;
    if (!pages->rail_->connect(ends[i]->get(), 0, other))
      return Error{Status::kDeviceFailed, errno, "the queue pairs cannot be connected"};
  }
  pages->source_.resize(kMostBytes);
  pages->source_registration_.reset(
      ibv_reg_mr(pages->rail_->domain(), pages->source_.data(), kMostBytes, IBV_ACCESS_LOCAL_WRITE));
  if (pages->source_registration_ == nullptr)
    return Error{Status::kNoMemory, errno, "the source cannot be registered"};
  return pages;
}

Status DevicePages::register_memory(void* address, std::size_t length_bytes, Access,
                                    MemoryRegion& region) noexcept {
  ibv_mr* const made =
      ibv_reg_mr(rail_->domain(), address, length_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (made == nullptr) return errno == ENOMEM ? Status::kNoMemory : Status::kUnsupported;
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{made->rkey},
            reinterpret_cast<std::uintptr_t>(made)};
  return Status::kOk;
}

void DevicePages::deregister_memory(MemoryRegion& region) noexcept {
  ibv_dereg_mr(reinterpret_cast<ibv_mr*>(region.local_key));  // NOLINT(performance-no-int-to-ptr)
  region = {};
}

bool DevicePages::meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) {
  const std::lock_guard guard(lock_);
  for (std::size_t at = 0; at < length_bytes; at += sizeof news_, ++news_)
    std::memcpy(source_.data() + at, &news_, std::min(sizeof news_, length_bytes - at));
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(source_.data()), static_cast<std::uint32_t>(length_bytes),
                source_registration_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(address);
  request.wr.rdma.rkey = static_cast<std::uint32_t>(region.remote_key);
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(sender_.get(), &request, &refused) != 0) nothing_was_written();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (rail_->fetch(1) && !rail_->holds_completions())
    if (std::chrono::steady_clock::now() > deadline) nothing_was_written();
  if (!rail_->holds_completions() || rail_->completion().status != IBV_WC_SUCCESS) nothing_was_written();
  ++rail_->next_completion;
  return std::memcmp(source_.data(), address, length_bytes) == 0;
}

}  // namespace ch3_offload
