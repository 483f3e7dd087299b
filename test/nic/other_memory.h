// The memory of a client in another process, without one: its processor reaches what the client has not shared
// by copies of the kernel from and to this process, and maps what it has shared a second time.

#pragma once

#include <cstdint>
#include <memory>

#include "nic/exchange.h"
#include "nic/process_targets.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {

class OtherMemory final : private SharesMemory {
 public:
  /// Of rank `rank` of `size`.
  OtherMemory(std::uint32_t rank, std::uint32_t size, KernelCopies copies = KernelCopies::kAllowed)
      : exchange_(PeerId{rank}, size, nullptr),
        port_(exchange_.attach(PeerId{rank})),
        process_(size, *port_, copies) {}
  ~OtherMemory() { told_->detach(); }

  ClientMemory& client() noexcept { return process_.memory; }
  /// Memory that is shared.
  const std::shared_ptr<SharedToldMemory>& told() const noexcept { return told_; }

 private:
  bool share(const std::byte* address, std::size_t length_bytes,
             const FileDescriptor& file) noexcept override {
    const NicdShare share{.address = reinterpret_cast<std::uint64_t>(address), .length_bytes = length_bytes};
    const int files[] = {file.get()};
    return send_with_files(process_.socket.client, std::as_bytes(std::span(&share, 1)), files) &&
           client().shares().share(share.address, length_bytes);
  }
  void unshare(const std::byte* address) noexcept override {
    client().shares().unshare(reinterpret_cast<std::uint64_t>(address));
  }

  Exchange exchange_;  ///< Nothing is sent through it.
  const std::unique_ptr<ExchangePort> port_;
  OtherProcess process_;
  const std::shared_ptr<SharedToldMemory> told_ =
      std::make_shared<SharedToldMemory>(static_cast<SharesMemory&>(*this));
};

}  // namespace ch3_offload
