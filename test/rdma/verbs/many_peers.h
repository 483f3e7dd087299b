// A simulated job, seen by one of its processes: a verbs provider with the default configuration, the
// *subject*, and thousands of peers, each a verbs provider of its own, in one process over the fake device.
// They are introduced over TCP, through the loopback interface.
//
// The pairs of peers with each other are not there: the subject has all its peers, and each peer has the
// subject only. So the subject does what each process of the job does.
//
// The subject is polled all the time, and its descriptors are the kernel's. A peer sleeps until one of its
// descriptors is readable. Those are simulated (simulated_descriptors.h), but for its sockets.
//
// A program that links this replaces operator new (counting_allocator.h).
//
// Threads: one, and the fake device has none of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma/seeded_random.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {

class ManyPeers {
 public:
  /// What one phase cost.
  struct Phase {
    double wall_s = 0;
    double subject_s = 0;        ///< Processor time of the subject's calls. The fake device's share is in it.
    std::uint64_t dials = 0;     ///< TCP connections that the subject began.
    std::uint64_t accepted = 0;  ///< TCP connections that peers began: all to the subject.
    std::size_t most_descriptors = 0;   ///< The subject's for introductions, at once.
    std::uint64_t parked = 0;           ///< Links of the subject.
    std::uint64_t made = 0;             ///< Likewise.
    std::uint64_t lost = 0;             ///< Likewise.
    std::uint64_t probes = 0;           ///< Of the subject.
    std::uint64_t credit_messages = 0;  ///< Likewise.
    std::uint64_t device_messages = 0;  ///< Sends and writes of all processes, as the device counts them.
  };

  struct Conditions {
    std::uint32_t processes = 2;  ///< The subject and its peers. At least 2.
    /// Peers that have begun an exchange and not ended it. Each process of a job dials so many at once.
    std::uint32_t begun_at_once = SocketIntroducer::kMostDials;
    bool tells_last_receive = true;  ///< The device does (IBV_EVENT_QP_LAST_WQE_REACHED).
    int peer_timeout_ms = VerbsConfig{}.peer_timeout_ms;  ///< Of all processes.
  };

  /// Makes the subject and its peers. An error says what is missing. REQUIRES: there is no other one.
  static Result<std::unique_ptr<ManyPeers>> make(const Conditions& conditions);
  ~ManyPeers();
  ManyPeers(const ManyPeers&) = delete;
  ManyPeers& operator=(const ManyPeers&) = delete;

  /// The subject and each peer send each other a message, and wait until all have come. The subject begins
  /// with all at once; in the first exchange it connects to all. The peers begin in random order.
  Phase exchange();
  /// Nobody sends anything. `awaits`: the subject waits for its peers (Sink::awaits()).
  Phase rest(double seconds, bool awaits);
  /// Rests until the job is quiet: introductions have ended, and all that was sent is known to have arrived.
  void come_to_rest();

  VerbsProvider& subject() noexcept { return *subject_; }
  /// By how much the subject's heap grew when it connected to the last peer, in bytes: that is for all peers
  /// that it has not spoken to, and for this one. REQUIRES: exchange() was called.
  std::int64_t heap_for_last_peer() const noexcept { return heap_for_last_peer_; }
  /// The same for all peers, before anything was sent.
  std::int64_t heap_for_connecting() const noexcept { return heap_for_connecting_; }
  /// Heap that the subject's calls have allocated, and not freed, without the fake device's.
  static std::int64_t subject_heap_bytes() noexcept;
  /// What went wrong, in words: messages that were wrong, came twice or did not come; peers that went down.
  const std::vector<std::string>& errors() const noexcept { return errors_; }

 private:
  struct Message {
    std::uint32_t from, to, round;
  };
  struct SubjectSink;
  struct PeerSink;
  struct Peer;

  explicit ManyPeers(const Conditions& conditions);
  std::string set_up();
  void connect_subject(Peer& peer);
  void connect_all();
  bool send(VerbsProvider& from, Endpoint& endpoint, const Message& message);
  void on_message(std::uint32_t self, PeerId sender, std::span<const std::byte> bytes);
  void note_error(std::string text);
  void begin_some();
  void poll_subject();
  void poll_peers();
  Phase so_far() const;
  Phase since(const Phase& before) const;

  const Conditions conditions_;
  std::unique_ptr<VerbsProvider> subject_;
  std::unique_ptr<SubjectSink> subject_sink_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< By PeerId; [0] is null: the subject.
  std::vector<std::uint32_t> order_;          ///< In which peers begin.
  std::uint32_t round_ = 0;                   ///< Exchanges begun.
  // In this round:
  std::size_t next_to_begin_ = 0;  ///< In order_.
  std::size_t under_way_ = 0;      ///< Peers that have begun and not ended.
  std::size_t ended_ = 0;          ///< Peers that have got and sent their messages.
  std::vector<Peer*> to_be_sent_;  ///< The subject's message for them has found no room yet.
  std::uint64_t last_message_ns_ = 0;

  std::int64_t heap_for_last_peer_ = 0;
  std::int64_t heap_for_connecting_ = 0;
  std::vector<std::uint32_t> woken_;
  std::uint64_t subject_cpu_ns_ = 0;
  std::size_t most_descriptors_ = 0;  ///< In this phase.
  std::vector<std::string> errors_;   ///< The first few.
  SeededRandom random_{1};
};

}  // namespace ch3_offload
