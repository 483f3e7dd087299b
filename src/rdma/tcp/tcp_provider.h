// The TCP provider: for nodes without RDMA.
//
// Each pair of processes that talk has one TCP connection, for both directions, made on first use: the
// connection of their introduction (rdma/introduction), which both keep. Records follow each other on it
// (tcp_frames.h). A message that finds room in the socket leaves inside commit(). A write goes from its source
// to its destination with one copy into the kernel and one out of it.
//
// Who has dialled sends nothing before the acceptor's first record: until that has come, the acceptor may have
// given the introduction up, and is dialled again.
//
// How a peer's death is known: its host closes or resets the connection, refuses a dial, or acknowledges
// nothing for the peer time-out and longer (TcpSilence). The kernel answers for a process that computes,
// however long. A connection that breaks is not made again: what was under way may be lost, so its peer counts
// as dead.
//
// Looking costs system calls. A provider that was idle for a while looks so seldom that it takes a small part
// of its caller's time: that may be waiting for messages through shared memory.
//
//   tcp_provider.cc    making it, connecting, ending
//   tcp_meetings.cc    introductions
//   tcp_sending.cc     what leaves
//   tcp_receiving.cc   what arrives
//   tcp_polling.cc     poll, sleep, what time asks for, deaths
//
// Threads: as rdma/provider.h says. fork: a child must not use the provider; it closes the sockets.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma/introduction/introducer.h"
#include "rdma/introduction/socket_introducer.h"
#include "rdma/log.h"
#include "rdma/peer_table.h"
#include "rdma/provider.h"
#include "rdma/tcp/tcp_address.h"
#include "rdma/tcp/tcp_config.h"
#include "rdma/tcp/tcp_endpoint.h"
#include "rdma/tcp/tcp_landings.h"

namespace ch3_offload {

class TcpProvider final : public Provider, private Introducer::Client {
 public:
  /// Errors: make_tcp_provider().
  static Result<std::unique_ptr<TcpProvider>> create(const TcpConfig& config);
  /// For create() only.
  TcpProvider(const TcpConfig& config, TcpAddress address, std::vector<FileDescriptor> listeners);
  /// Waits, for the peer time-out at most, until the peers' hosts have what was sent.
  ~TcpProvider() override;
  bool leave() noexcept override;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return own_address_; }
  bool reaches(std::string_view address) const noexcept override;
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    return landings_.add(static_cast<std::byte*>(address), length_bytes, access, region);
  }
  void deregister_memory(MemoryRegion& region) noexcept override { landings_.remove(region); }
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool forget(PeerId peer) noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }
  ProviderCounters counters() const noexcept override;

  /// Ends without waiting, as a killed process would: for tests.
  void abandon() noexcept { abandoned_ = true; }
  /// How often poll() has looked at sockets: for tests.
  std::uint64_t looks() const noexcept { return looks_; }

 private:
  using State = TcpEndpoint::State;

  static constexpr std::size_t kReceiveBytes = 64 * 1024;  ///< Of one call.
  static constexpr std::size_t kReceiveAheadBytes = 4096;  ///< The same, ahead of a part of a write.

  /// REQUIRES: connect() of this provider returned it.
  static TcpEndpoint& of(Endpoint& endpoint) noexcept { return static_cast<TcpEndpoint&>(endpoint); }

  // tcp_provider.cc
  TcpEndpoint& find_or_make(PeerId peer);
  void make_ready(TcpEndpoint& peer, const TcpAddress& address, const PeerNames& names);

  // tcp_meetings.cc
  static TcpEndpoint& of(Introducer::Contact& contact) noexcept { return static_cast<TcpEndpoint&>(contact); }
  static const TcpEndpoint& of(const Introducer::Contact& contact) noexcept {
    return static_cast<const TcpEndpoint&>(contact);
  }
  void fill_in(TcpHello& body, const TcpEndpoint& peer) const noexcept;
  std::size_t addresses(const Introducer::Contact&) const noexcept override { return 1; }
  SocketAddress address(const Introducer::Contact& contact, std::size_t index) const noexcept override;
  bool our_dial_counts(const Introducer::Contact& contact) const noexcept override;
  void say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept override;
  std::optional<Refusal> meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) override;
  std::optional<Refusal> identify(const Frame&, Introducer::Guest&) noexcept override;
  bool on_answer(Introducer::Contact& contact, const Frame& hello) noexcept override;
  void on_offer(Introducer::Contact& contact, const Frame& offer, bool is_answer) noexcept override;
  void on_connection(Introducer::Contact& contact, ForkClosedDescriptor socket) noexcept override;
  void on_ready(Introducer::Contact& contact) noexcept override;
  void on_broken(Introducer::Contact&) noexcept override {}
  void on_knock(Introducer::Contact& contact, std::uint32_t note) noexcept override;
  void on_gone(Introducer::Contact& contact, Refusal reason) noexcept override;
  void on_silence(Introducer::Contact& contact, Introducer::Silence silence) noexcept override;
  void offer_to(Introducer::Contact& contact) noexcept;

  // tcp_sending.cc
  void flush(TcpEndpoint& peer) noexcept;
  void flush_parts() noexcept;
  void watch_for_room(TcpEndpoint& peer, bool is_blocked) noexcept;
  void note_lack(TcpEndpoint& peer, bool& what) noexcept;
  void note_done(TcpEndpoint& peer) noexcept;
  void tell_done() noexcept;
  void tell_writes(TcpEndpoint& peer) noexcept;

  // tcp_receiving.cc
  bool may_take_more() const noexcept { return !holds_ && found_ < budget_; }
  std::size_t receive(TcpEndpoint& peer) noexcept;
  std::size_t receive_once(TcpEndpoint& peer, std::size_t& wanted_bytes) noexcept;
  void take_payload(TcpEndpoint& peer, std::size_t length_bytes) noexcept;
  void take_records() noexcept;
  bool begin_record(TcpEndpoint& peer) noexcept;
  void deliver(TcpEndpoint& peer, std::span<const std::byte> message) noexcept;
  void deliver_part(TcpEndpoint& peer, const TcpWriteRecord& record) noexcept;
  void violates(TcpEndpoint& peer) noexcept;

  // tcp_polling.cc
  void look() noexcept;
  void look_at_all() noexcept;
  void read_ending() noexcept;
  void keep_house() noexcept;
  void look_for_silence(std::uint64_t now_ns) noexcept;
  bool is_silent(TcpEndpoint& peer, std::uint64_t now_ns) const noexcept;
  void lose(TcpEndpoint& peer, int error_number) noexcept;
  void disconnect(TcpEndpoint& peer) noexcept;
  void on_over(TcpEndpoint& peer, Status reason) noexcept;
  void tell_deaths() noexcept;
  std::size_t tell_room() noexcept;
  void wake_soon() noexcept;
  void set_alarm() noexcept;
  bool set_alarm(std::uint64_t delay_ns) const noexcept;
  std::uint64_t look_ns() const noexcept {
    return static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000 / 8;
  }
  bool is_quiet() const noexcept {
    return unparsed_.empty() && done_.empty() && dying_.empty() && ending_.empty();
  }

  const TcpConfig config_;
  const Log log_;
  const TcpAddress address_;
  const std::string own_address_ = address_.to_string();
  Capabilities capabilities_;
  TcpLandings landings_;
  SocketIntroducer introducer_;
  PeerTable<TcpEndpoint> peers_;
  std::size_t known_ = 0;  ///< Peers in peers_.
  std::size_t room_ = 0;   ///< Peers that all lists have room for.
  std::vector<TcpEndpoint*> lacking_, done_, ending_, dying_;
  std::vector<TcpEndpoint*> with_parts_;  ///< Whose outboxes may have parts for which no call was made yet.

  // Of poll().
  Sink* sink_ = nullptr;
  std::size_t budget_ = 0;
  std::size_t found_ = 0;
  bool holds_ = false;  ///< The sink has held a message in this poll().
  const std::unique_ptr<std::byte[]> buffer_;
  std::span<std::byte> unparsed_;  ///< What was read of `unparsed_of_` and not taken: in buffer_.
  TcpEndpoint* unparsed_of_ = nullptr;
  TcpEndpoint* hot_ = nullptr;  ///< From whom something has come last. Null: nobody.
  std::uint32_t blocked_ = 0;   ///< Peers that are watched for room.
  std::uint64_t looks_ = 0;
  std::uint32_t first_event_ = 0;  ///< Modulo how many there are: with which look_at_all() begins.
  std::uint64_t busy_at_ = 0;      ///< CycleClock, when something came or left last.
  std::uint64_t next_look_ = 0;    ///< Likewise, while nothing does.
  std::uint64_t last_round_ns_ = 0;
  std::uint64_t last_silence_ns_ = 0;  ///< look_for_silence().

  FileDescriptor epoll_;
  FileDescriptor alarm_;
  bool armed_ = false;
  bool alarm_is_set_ = false;
  bool abandoned_ = false;
  enum class Leaving : std::uint8_t { kNot, kSending, kShut, kOver };
  Leaving leaving_ = Leaving::kNot;
  std::uint64_t leaving_until_ns_ = 0;
  bool silence_logged_ = false;
  std::uint64_t connections_ = 0;  ///< Now.
  std::uint64_t connections_made_ = 0;
  std::uint64_t connections_lost_ = 0;
};

}  // namespace ch3_offload
