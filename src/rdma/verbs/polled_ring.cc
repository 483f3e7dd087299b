#include "rdma/verbs/polled_ring.h"

#include <sys/random.h>

#include <cerrno>
#include <limits>

namespace ch3_offload {

bool SendRing::open(const RingBody& body) noexcept {
  const std::uint64_t bytes = std::uint64_t{body.entry_bytes} * kRingEntries;
  if (body.reserved != 0 || body.entry_bytes == 0 || body.entry_bytes % 64 != 0 ||
      body.entry_bytes > kLongestRingEntryBytes || body.address == 0 || body.address % 64 != 0 ||
      body.address > std::numeric_limits<std::uint64_t>::max() - bytes)
    return false;
  address_ = body.address;
  key_ = body.key;
  remote_key_ = body.remote_key;
  entry_bytes_ = body.entry_bytes;
  return true;
}

void SendRing::write(std::uint64_t number, std::byte* message, ibv_sge& piece,
                     ibv_send_wr& request) const noexcept {
  piece.length = static_cast<std::uint32_t>(seal_ring_entry(message, piece.length, key_, number));
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = address_ + (number % kRingEntries + 1) * entry_bytes_ - piece.length;
  request.wr.rdma.rkey = remote_key_;
}

bool ReceiveRing::make(ibv_pd* domain) noexcept {
  void* const memory =
      ::mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  words_.reset(static_cast<std::uint64_t*>(memory));  // Zeros: no entry.
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  registration_.reset(ibv_reg_mr(domain, memory, kRingBytes, kAccess));
  if (registration_ == nullptr || ::getrandom(&key_, sizeof key_, 0) != sizeof key_) {
    const int error = errno;
    free();
    errno = error;
    return false;
  }
  return true;
}

void ReceiveRing::free() noexcept {
  registration_.reset();
  words_.reset();
  state = State::kFree;
  link = nullptr;
  messages = 0;
}

RingBody ReceiveRing::body(std::uint32_t link_number) const noexcept {
  RingBody body{.key = key_, .link = link_number};
  if (state == State::kOpenDue) {
    body.address = reinterpret_cast<std::uintptr_t>(words_.get());
    body.remote_key = registration_->rkey;
    body.entry_bytes = kRingEntryBytes;
  }
  return body;
}

}  // namespace ch3_offload
