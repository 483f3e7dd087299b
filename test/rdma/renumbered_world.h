// A ContractWorld whose processes number each other differently: the contract, between processes that have no
// common numbers (PeerNames).
//
// The suite names a process by its place in the world. Each provider is wrapped: the wrapper turns places into
// the numbers of its own process, and back.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rdma/contract_world.h"

namespace ch3_offload {

/// How the processes of a world number themselves and each other.
struct Numbering {
  /// All have this number for themselves.
  static constexpr PeerId kOwn{3};
  /// The number of the process at place `other`, at the process at place `at`.
  static constexpr PeerId of(std::uint32_t other, std::uint32_t at) {
    return other == at ? kOwn : PeerId{4 + at + 2 * other};
  }
  static constexpr PeerId place_of(PeerId number, std::uint32_t at) {
    return PeerId{(index_of(number) - 4 - at) / 2};
  }
};

class RenumberedProvider final : public Provider {
 public:
  /// `place` of this process in the world.
  RenumberedProvider(Provider& inner, std::uint32_t place) : inner_(inner), place_(place) {}

  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address, const std::optional<PeerNames>&) override {
    // An answer needs no names: the peer has told them.
    const bool is_answer = !inner_.address_of(number_of(peer)).empty();
    const PeerNames names{Numbering::of(place_, index_of(peer)), Numbering::kOwn};
    return inner_.connect(number_of(peer), address, is_answer ? std::optional<PeerNames>() : names);
  }
  std::string address_of(PeerId peer) const override { return inner_.address_of(number_of(peer)); }
  bool end(PeerId peer) noexcept override { return inner_.end(number_of(peer)); }
  bool forget(PeerId peer) noexcept override { return inner_.forget(number_of(peer)); }
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override {
    Renumbering renumbering(sink, place_);
    return inner_.poll(renumbering, budget);
  }

  const Capabilities& capabilities() const noexcept override { return inner_.capabilities(); }
  std::string local_address() const override { return inner_.local_address(); }
  bool reaches(std::string_view address) const noexcept override { return inner_.reaches(address); }
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
  ch3_offload_lane_t* lane(Endpoint& endpoint) noexcept override { return inner_.lane(endpoint); }
  void nudge(Endpoint& endpoint) noexcept override { inner_.nudge(endpoint); }
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override {
    return inner_.write(endpoint, source, length_bytes, region, destination, immediate, work);
  }
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    return inner_.register_memory(address, length_bytes, access, region);
  }
  void deregister_memory(MemoryRegion& region) noexcept override { inner_.deregister_memory(region); }
  bool may_have_work() noexcept override { return inner_.may_have_work(); }
  bool arm() noexcept override { return inner_.arm(); }
  void disarm() noexcept override { inner_.disarm(); }
  int descriptor() const noexcept override { return inner_.descriptor(); }
  bool leave() noexcept override { return inner_.leave(); }
  ProviderCounters counters() const noexcept override { return inner_.counters(); }

 private:
  class Renumbering final : public Sink {
   public:
    Renumbering(Sink& sink, std::uint32_t place) : sink_(sink), place_(place) {}
    Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
      return sink_.on_message(place_of(peer), message);
    }
    void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
      sink_.on_write_arrived(place_of(peer), immediate, length_bytes);
    }
    std::byte* on_write_shared(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
      return sink_.on_write_shared(place_of(peer), immediate, length_bytes);
    }
    bool awaits(PeerId peer) const noexcept override { return sink_.awaits(place_of(peer)); }
    void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
      sink_.on_write_done(place_of(peer), work, status);
    }
    void on_peer_down(PeerId peer, Status reason) noexcept override {
      sink_.on_peer_down(place_of(peer), reason);
    }

   private:
    PeerId place_of(PeerId number) const noexcept { return Numbering::place_of(number, place_); }

    Sink& sink_;
    const std::uint32_t place_;
  };

  PeerId number_of(PeerId place) const noexcept { return Numbering::of(index_of(place), place_); }

  Provider& inner_;
  const std::uint32_t place_;
};

/// Wraps a world all of whose processes have the number Numbering::kOwn for themselves.
class RenumberedWorld final : public ContractWorld {
 public:
  explicit RenumberedWorld(std::unique_ptr<ContractWorld> inner) : inner_(std::move(inner)) {
    for (std::uint32_t i = 0; i < inner_->size(); ++i)
      providers_.push_back(std::make_unique<RenumberedProvider>(inner_->at(PeerId{i}), i));
  }

  std::size_t size() const override { return inner_->size(); }
  Provider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return inner_->alive(peer); }
  void step() override { inner_->step(); }
  void settle() override { inner_->settle(); }
  void kill(PeerId peer) override { inner_->kill(peer); }

 private:
  std::unique_ptr<ContractWorld> inner_;
  std::vector<std::unique_ptr<RenumberedProvider>> providers_;
};

}  // namespace ch3_offload
