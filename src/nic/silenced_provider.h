// The providers of a client that has its own (nicd_lone_process.h), as its engine sees them. Once the
// client's memory could not be read (ClientOutlet::silence()), commit() sends nothing. There are no lanes:
// these bypass commit(). There are no writes, so that no peer reaches memory that the client may unshare.
//
// Threads: one at a time.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nic/client_outlet.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// Of all providers of a client.
class Silence final : public ClientOutlet {
 public:
  explicit Silence(PeerId rank) noexcept : rank_(rank) {}

  PeerId rank() const noexcept override { return rank_; }
  void silence() noexcept override { is_silent_ = true; }
  bool is_silent() const noexcept { return is_silent_; }

 private:
  const PeerId rank_;
  bool is_silent_ = false;
};

class SilencedProvider final : public Provider {
 public:
  /// Both outlive this object.
  SilencedProvider(Provider& provider, const Silence& silence) noexcept
      : provider_(provider), silence_(silence), capabilities_(provider.capabilities()) {
    capabilities_.write = false;
    capabilities_.registering_costs = false;
  }

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return provider_.local_address(); }
  bool reaches(std::string_view address) const noexcept override { return provider_.reaches(address); }
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override {
    return provider_.connect(peer, address, names);
  }
  std::string address_of(PeerId peer) const override { return provider_.address_of(peer); }
  bool end(PeerId peer) noexcept override { return provider_.end(peer); }
  bool forget(PeerId peer) noexcept override { return provider_.forget(peer); }
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override {
    return provider_.max_slot_bytes(endpoint);
  }
  Status register_memory(void*, std::size_t, Access, MemoryRegion&) noexcept override {
    return Status::kUnsupported;
  }
  void deregister_memory(MemoryRegion&) noexcept override {}
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    return provider_.reserve(endpoint, length_bytes, slot);
  }
  /// The next reserve() takes the slot back.
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    if (!silence_.is_silent()) provider_.commit(endpoint, length_bytes);
  }
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    if (!silence_.is_silent()) provider_.commit_part(endpoint, length_bytes);
  }
  Status write(Endpoint&, const std::byte*, std::size_t, const MemoryRegion&, RemoteMemory, Immediate,
               WorkId) noexcept override {
    return Status::kUnsupported;
  }
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override { return provider_.poll(sink, budget); }
  bool may_have_work() noexcept override { return provider_.may_have_work(); }
  bool arm() noexcept override { return provider_.arm(); }
  void disarm() noexcept override { provider_.disarm(); }
  int descriptor() const noexcept override { return provider_.descriptor(); }
  bool leave() noexcept override { return provider_.leave(); }
  ProviderCounters counters() const noexcept override { return provider_.counters(); }

 private:
  Provider& provider_;
  const Silence& silence_;
  Capabilities capabilities_;
};

}  // namespace ch3_offload
