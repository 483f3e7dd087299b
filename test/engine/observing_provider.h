// A provider in front of another one, which shows its observer each message before the engine gets it.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rdma/provider.h"

namespace ch3_offload {

class ObservingProvider final : public Provider {
 public:
  using Observer = std::function<void(PeerId from, std::span<const std::byte> message)>;

  ObservingProvider(Provider& inner, Observer observer) : inner_(inner), observer_(std::move(observer)) {}
  int shortages = 0;  ///< So many times more, connect() has no memory.

  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    return inner_.register_memory(address, length_bytes, access, region);
  }
  void deregister_memory(MemoryRegion& region) noexcept override { inner_.deregister_memory(region); }
  const Capabilities& capabilities() const noexcept override { return inner_.capabilities(); }
  std::string local_address() const override { return inner_.local_address(); }
  bool reaches(std::string_view address) const noexcept override { return inner_.reaches(address); }
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override {
    if (shortages > 0 && shortages-- > 0) return Error{Status::kNoMemory, 0, "by order of the test"};
    return inner_.connect(peer, address, names);
  }
  std::string address_of(PeerId peer) const override { return inner_.address_of(peer); }
  bool end(PeerId peer) noexcept override { return inner_.end(peer); }
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override {
    return inner_.max_slot_bytes(endpoint);
  }
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    return inner_.reserve(endpoint, length_bytes, slot);
  }
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    inner_.commit(endpoint, length_bytes);
  }
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    inner_.commit_part(endpoint, length_bytes);
  }
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override {
    return inner_.write(endpoint, source, length_bytes, region, destination, immediate, work);
  }
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override {
    Between between(sink, observer_);
    return inner_.poll(between, budget);
  }
  bool arm() noexcept override { return inner_.arm(); }
  void disarm() noexcept override { inner_.disarm(); }
  int descriptor() const noexcept override { return inner_.descriptor(); }

 private:
  class Between final : public Sink {
   public:
    Between(Sink& engine, const Observer& observer) : engine_(engine), observer_(observer) {}
    Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
      observer_(peer, message);
      return engine_.on_message(peer, message);
    }
    void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
      engine_.on_write_arrived(peer, immediate, length_bytes);
    }
    std::byte* on_write_shared(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
      return engine_.on_write_shared(peer, immediate, length_bytes);
    }
    bool awaits(PeerId peer) const noexcept override { return engine_.awaits(peer); }
    void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
      engine_.on_write_done(peer, work, status);
    }
    void on_peer_down(PeerId peer, Status reason) noexcept override { engine_.on_peer_down(peer, reason); }

   private:
    Sink& engine_;
    const Observer& observer_;
  };

  Provider& inner_;
  const Observer observer_;
};

}  // namespace ch3_offload
