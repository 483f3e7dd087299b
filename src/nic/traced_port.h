// The client's side of the trace: a port in front of another, which records what the client gives and takes.
//
// There is one only while a trace is on, so that nothing of it costs anything otherwise. It keeps to the
// commands and events that all clients use: there is no lane, receive_now() leaves its receives to
// post_receive(), and all events go through next_event(). So each command has a cookie, and each completion
// is recorded when it is taken. `ch3-offload-trace` joins both with the engine's events by the cookie.
//
// Threads: as Port. The trace has one writer: whoever calls this port.

#pragma once

#include <memory>

#include "engine/trace.h"
#include "nic/port.h"

namespace ch3_offload {

class TracedPort final : public Port {
 public:
  /// `trace` is not owned.
  TracedPort(std::unique_ptr<Port> port, Trace& trace) noexcept;

  Progressed send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                  std::uint32_t send_id, Cookie cookie, OperationId& operation,
                  Status& status) noexcept override;
  ch3_offload_lane_t* lane(PeerId) noexcept override { return nullptr; }
  void nudge(PeerId peer) noexcept override { port_->nudge(peer); }
  Progressed send_packet(PeerId peer, std::span<const std::byte> header, std::span<const Payload> data,
                         Cookie cookie, Status& status) noexcept override;
  Progressed post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload, Cookie cookie,
                          OperationId& operation, Envelope& envelope) noexcept override;
  bool receive_now(const MatchKey&, const MatchKey&, const Payload&, Envelope&) noexcept override {
    return false;
  }
  bool probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept override {
    return port_->probe(key, ignore, envelope);
  }
  bool matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                     Envelope& envelope) noexcept override {
    return port_->matched_probe(key, ignore, message, envelope);
  }
  std::uint64_t arrivals() const noexcept override { return port_->arrivals(); }
  Progressed receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                             Envelope& envelope) noexcept override;
  bool cancel_receive(OperationId operation) noexcept override { return port_->cancel_receive(operation); }
  Progressed cancel_send(OperationId operation, PeerId peer, const MatchKey& key, std::uint32_t send_id,
                         Cookie cookie) noexcept override;
  bool schedule(std::span<const ScheduleStep> steps, const ScheduleMarks& marks,
                Cookie cookie) noexcept override {
    return port_->schedule(steps, marks, cookie);
  }
  std::size_t most_schedule_steps() const noexcept override { return port_->most_schedule_steps(); }
  void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept override {
    port_->classify(channel, traffic_class);
  }
  void purge(PurgeScope scope, std::span<const MatchPattern> doomed, std::span<const MatchPattern> spared,
             Status reason) noexcept override {
    port_->purge(scope, doomed, spared, reason);
  }
  void introduce(PeerId peer, std::string_view card) noexcept override { port_->introduce(peer, card); }
  bool add_providers(std::span<Provider* const> providers) noexcept override {
    return port_->add_providers(providers);
  }
  bool forget_peer(PeerId peer) noexcept override { return port_->forget_peer(peer); }
  void place_packet(PeerId peer, const Payload& place) noexcept override { port_->place_packet(peer, place); }
  void fail_peer(PeerId peer) noexcept override { port_->fail_peer(peer); }
  void close_peer(PeerId peer) noexcept override { port_->close_peer(peer); }

  std::size_t progress() noexcept override { return port_->progress(); }
  bool next_event(Event& event) noexcept override;
  ch3_offload_events_t& events() noexcept override { return events_; }

  bool idle() const noexcept override { return port_->idle(); }
  bool at_rest() const noexcept override { return port_->at_rest(); }
  bool may_have_work() noexcept override { return port_->may_have_work(); }
  bool arm() noexcept override { return port_->arm(); }
  void disarm() noexcept override { port_->disarm(); }
  std::span<const int> descriptors() const noexcept override { return port_->descriptors(); }
  std::uint64_t next_due_ns() const noexcept override { return port_->next_due_ns(); }

  bool keeps_memory() const noexcept override { return port_->keeps_memory(); }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    port_->memory_gone(address, length_bytes);
  }
  void stop_keeping_memory() noexcept override { port_->stop_keeping_memory(); }

  SharedArena* arena() noexcept override { return port_->arena(); }
  std::string card() const override { return port_->card(); }
  const CounterPage& counters() const noexcept override { return port_->counters(); }
  const RingCounters& ring_counters() const noexcept override { return port_->ring_counters(); }
  int write_trace(const std::string& path) noexcept override { return port_->write_trace(path); }

 private:
  /// Records a command that was given at `given_ns` and has returned.
  Progressed given(std::uint64_t given_ns, TraceEvent event, PeerId peer, std::uint64_t detail, Cookie cookie,
                   Progressed progressed) noexcept;

  const std::unique_ptr<Port> port_;
  Trace& trace_;
  const PeerId self_;
  ch3_offload_events_t events_{};  ///< Always empty, and `others` is always 1: the client asks next_event().
};

}  // namespace ch3_offload
