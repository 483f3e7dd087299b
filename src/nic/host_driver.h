// The host driver: the engine runs inside the client's calls, and so do modules (modules/module_runner.h).
// There is no queue and no thread, so nothing moves while the client computes.

#pragma once

#include <string>
#include <vector>

#include "engine/trace.h"
#include "modules/module_runner.h"
#include "nic/port.h"

namespace ch3_offload {

class HostDriver final : public Port {
 public:
  /// As Engine's. Throws std::bad_alloc.
  HostDriver(const EngineConfig& config, std::span<Provider* const> providers);

  Progressed send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                  std::uint32_t send_id, Cookie cookie, OperationId& operation,
                  Status& status) noexcept override {
    return engine_.send(peer, mode, key, payload, send_id, cookie, operation, status);
  }
  ch3_offload_lane_t* lane(PeerId peer) noexcept override { return engine_.lane(peer); }
  void nudge(PeerId peer) noexcept override { engine_.nudge(peer); }
  Progressed send_packet(PeerId peer, std::span<const std::byte> header, std::span<const Payload> data,
                         Cookie cookie, Status& status) noexcept override {
    return engine_.send_packet(peer, header, data, cookie, status);
  }
  Progressed post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload, Cookie cookie,
                          OperationId& operation, Envelope& envelope) noexcept override {
    return engine_.post_receive(key, ignore, payload, cookie, operation, envelope);
  }
  bool receive_now(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                   Envelope& envelope) noexcept override {
    return engine_.receive_now(key, ignore, payload, envelope);
  }
  bool probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept override {
    return engine_.probe(key, ignore, envelope);
  }
  bool matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                     Envelope& envelope) noexcept override {
    return engine_.matched_probe(key, ignore, message, envelope);
  }
  std::uint64_t arrivals() const noexcept override { return engine_.counters().received_unexpected; }
  Progressed receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                             Envelope& envelope) noexcept override {
    return engine_.receive_matched(message, payload, cookie, envelope);
  }
  bool cancel_receive(OperationId operation) noexcept override { return engine_.cancel_receive(operation); }
  Progressed cancel_send(OperationId operation, PeerId peer, const MatchKey& key, std::uint32_t send_id,
                         Cookie cookie) noexcept override {
    return engine_.cancel_send(operation, peer, key, send_id, cookie);
  }
  void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept override {
    engine_.classify(channel, traffic_class);
  }
  void purge(PurgeScope scope, std::span<const MatchPattern> doomed, std::span<const MatchPattern> spared,
             Status reason) noexcept override {
    engine_.purge(scope, doomed, spared, reason);
  }
  void introduce(PeerId peer, std::string_view card) noexcept override { engine_.introduce(peer, card); }
  void place_packet(PeerId peer, const Payload& place) noexcept override {
    engine_.place_packet(peer, place);
  }
  void fail_peer(PeerId peer) noexcept override {
    engine_.fail_peer(peer);
    modules_.fail_peer(peer);
  }
  void close_peer(PeerId peer) noexcept override { engine_.close_peer(peer); }
  bool add_providers(std::span<Provider* const> providers) noexcept override;
  bool forget_peer(PeerId peer) noexcept override { return engine_.forget_peer(peer); }

  std::size_t progress() noexcept override {
    const std::size_t happened = engine_.progress();
    return news_.any() ? happened + modules_.advance() : happened;
  }
  bool next_event(Event& event) noexcept override {
    if (!engine_.next_event(event)) return false;
    if (event.kind == Event::Kind::kPeerFailed) modules_.fail_peer(event.peer);
    return true;
  }
  ch3_offload_events_t& events() noexcept override { return engine_.events(); }

  /// What modules have to do does not count: a program ends its groups before it waits for this, or does not
  /// care.
  bool idle() const noexcept override { return engine_.idle(); }
  bool at_rest() const noexcept override { return !has_program_work() && engine_.at_rest(); }
  bool may_have_work() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  std::uint64_t next_due_ns() const noexcept override { return modules_.next_due_ns(); }

  bool keeps_memory() const noexcept override { return engine_.keeps_memory(); }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    engine_.memory_gone(address, length_bytes);
  }
  void stop_keeping_memory() noexcept override { engine_.stop_keeping_memory(); }

  std::string card() const override { return engine_.card(); }
  const CounterPage& counters() const noexcept override { return engine_.counters(); }
  /// For the driver's second client (host_targets.h).
  Engine& engine() noexcept { return engine_; }
  const Engine& engine() const noexcept { return engine_; }

  int write_trace(const std::string& path) noexcept override {
    return trace_ == nullptr ? 0 : trace_->write(path);
  }

 private:
  /// Whether progress() would find something that modules have to do.
  bool has_program_work() const noexcept {
    return news_.any() && (news_.messages || modules_.next_due_ns() == 0);
  }

  const Trace* const trace_;  ///< Null: none.
  std::vector<Provider*> providers_;
  std::vector<int> descriptors_;
  ModuleNews news_;
  ModuleRunner modules_;  ///< Outlives the engine, which may be reading its messages.
  Engine engine_;
};

}  // namespace ch3_offload
