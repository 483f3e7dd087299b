// What the provider contract suite needs from a provider's author: a world of connectable providers
// in one process, and a sink that writes down what it is told.
//
// Used by provider_contract.h. A provider's test implements ContractWorld and instantiates the suites:
//
//   INSTANTIATE_PROVIDER_CONTRACT(Shm, (std::vector<ContractParam>{{.name = "Streaming", .make = &make_world, .writes = false}}));

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rdma/provider.h"

namespace ch3_offload {

/// N processes, PeerId 0 .. size() - 1, none connected yet.
class ContractWorld {
 public:
  virtual ~ContractWorld() = default;

  virtual std::size_t size() const = 0;

  /// REQUIRES: `peer` was not killed.
  virtual Provider& at(PeerId peer) = 0;
  /// Of its writes to the others, and theirs to it.
  virtual Registrar& registrar(PeerId peer) { return at(peer); }
  virtual bool alive(PeerId peer) const = 0;

  /// Lets a little time pass: a simulated fabric advances its clock; a real one need do nothing. The
  /// suite calls it between polls.
  virtual void step() = 0;

  /// Lets everything that is in flight arrive at (but not be polled by) its destination, so far as the
  /// receiver has room for it.
  virtual void settle() {
    for (int i = 0; i < 1000; ++i) step();
  }

  /// The process dies without a goodbye: its provider is gone when this returns.
  virtual void kill(PeerId peer) = 0;

  /// A process that claims to be `claimed` but does not know the job's secret. Null: this provider
  /// has no secrets.
  virtual std::unique_ptr<Provider> make_impostor(PeerId claimed) {
    static_cast<void>(claimed);
    return nullptr;
  }
};

/// The endpoints that the processes of a test got when they connected.
class Endpoints {
 public:
  /// Connects process `from`, whose provider this is, and notes the endpoint.
  Result<Endpoint*> connect(Provider& provider, PeerId from, PeerId to, std::string_view address) {
    Result<Endpoint*> connected = provider.connect(to, address);
    if (connected.ok()) note(from, to, connected.value());
    return connected;
  }
  void note(PeerId from, PeerId to, Endpoint* endpoint) { endpoints_[{from, to}] = endpoint; }
  /// REQUIRES: `from` has connected to `to`.
  Endpoint& of(PeerId from, PeerId to) const { return *endpoints_.at({from, to}); }
  void clear() { endpoints_.clear(); }

 private:
  std::map<std::pair<PeerId, PeerId>, Endpoint*> endpoints_;
};

/// One configuration of a provider, and which parts of the contract it is under.
struct ContractParam {
  const char* name;  ///< Suffix of the test names: letters and digits.
  std::unique_ptr<ContractWorld> (*make)(std::size_t size);
  bool writes = true;       ///< It writes, wherever the machine can.
  bool refuses = false;     ///< It has write(), which says kUnsupported to every peer of this world.
  bool sleeps = true;       ///< It has a descriptor to sleep on.
  bool has_secrets = true;  ///< It refuses who does not know the job's secret.
  bool serves_all = false;  ///< It serves both ends, and knows their addresses.
};
inline std::ostream& operator<<(std::ostream& out, const ContractParam& param) { return out << param.name; }

/// Writes down everything in order. `reaction`, when set, runs after each message is recorded: it may
/// call what Sink allows.
class RecordingSink final : public Sink {
 public:
  enum class Kind { kMessage, kWriteArrived, kWriteDone, kPeerDown };
  struct Event {
    Kind kind;
    PeerId peer;
    std::vector<std::byte> bytes{};
    Immediate immediate{};
    std::size_t length_bytes = 0;  ///< kWriteArrived.
    WorkId work{};
    Status status = Status::kOk;
  };

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    events.push_back({.kind = Kind::kMessage, .peer = peer, .bytes = {message.begin(), message.end()}});
    if (reaction) reaction(events.back());
    held = holds ? message : std::span<const std::byte>();
    return holds ? Delivery::kHeld : Delivery::kTaken;
  }
  void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
    events.push_back(
        {.kind = Kind::kWriteArrived, .peer = peer, .immediate = immediate, .length_bytes = length_bytes});
  }
  std::optional<PeerId> writer_of(Immediate) const noexcept override { return writer; }
  std::byte* on_write_shared(PeerId, Immediate, std::size_t length_bytes) noexcept override {
    return shared_landing.size() == length_bytes ? shared_landing.data() : nullptr;
  }
  bool is_landing(PeerId, Immediate, const std::byte*, std::size_t) const noexcept override { return lands; }
  void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
    events.push_back({.kind = Kind::kWriteDone, .peer = peer, .work = work, .status = status});
  }
  void on_peer_down(PeerId peer, Status reason) noexcept override {
    events.push_back({.kind = Kind::kPeerDown, .peer = peer, .status = reason});
  }

  bool awaits(PeerId) const noexcept override { return waits; }

  std::size_t count(Kind kind) const {
    std::size_t n = 0;
    for (const Event& event : events) n += event.kind == kind;
    return n;
  }
  std::size_t count(Kind kind, PeerId peer) const {
    std::size_t n = 0;
    for (const Event& event : events) n += event.kind == kind && event.peer == peer;
    return n;
  }

  std::vector<Event> events;
  bool waits = true;             ///< For every peer.
  bool lands = true;             ///< What is_landing() says.
  std::optional<PeerId> writer;  ///< Of all writes that arrive here.
  std::function<void(const Event&)> reaction;
  bool holds = false;                   ///< Each message is held (Delivery::kHeld).
  std::span<const std::byte> held;      ///< The latest of those.
  std::span<std::byte> shared_landing;  ///< Where writes of this length land (on_write_shared()).
};

/// Bytes that differ by stream, message and position, so that any mix-up shows.
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : state_(seed * 0x9E37'79B9'7F4A'7C15u + 1) {}

  std::uint64_t next() noexcept {  // xorshift64*: small, and the same on every machine.
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545'F491'4F6C'DD1Du;
  }
  std::size_t length_between(std::size_t least, std::size_t most) noexcept {
    return least + next() % (most - least + 1);
  }
  void fill(std::span<std::byte> bytes) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = next();
      std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
    }
  }
  std::vector<std::byte> bytes(std::size_t length) {
    std::vector<std::byte> result(length);
    fill(result);
    return result;
  }

 private:
  std::uint64_t state_;
};

}  // namespace ch3_offload
