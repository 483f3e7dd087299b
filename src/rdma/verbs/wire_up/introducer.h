// What links ask of introductions, and are told. WireUp makes introductions over TCP.
//
// Threads: as rdma/provider.h says. Nothing blocks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "rdma/provider.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload {

class WireUp;
struct Introduction;

/// Of two processes, as one of them sees them: both find the same one first, whatever numbers they use.
/// RULE NO COMMON NUMBERS (src/engine/README.md). In a job it is the one with the lower number.
inline bool comes_first(PeerId self, std::uint64_t instance, PeerId peer, const PeerNames& names,
                        std::uint64_t peers_instance) noexcept {
  return std::tuple(self, names.known_as, instance) < std::tuple(names.own, peer, peers_instance);
}
/// The names by which who says hello is answered.
inline PeerNames names_in(const HelloBody& body) noexcept {
  return {PeerId{body.known_as}, PeerId{body.own}};
}

class Introducer {
 public:
  /// One lane of a peer. Owned by the client. Outlives the introductions with it.
  class Contact {
   public:
    Contact(PeerId peer, std::uint8_t lane) noexcept : id(peer), index(lane) {}
    Contact(const Contact&) = delete;
    Contact& operator=(const Contact&) = delete;
    const PeerId id;
    const std::uint8_t index;  ///< Of the lane. 0: the main one.
    PeerNames names;           ///< The client sets them before it seeks the contact, and in meet().
    bool is_sought() const noexcept { return sought_; }
    /// It is sought, or an introduction with it goes on.
    bool is_in_use() const noexcept { return sought_ || dial_ != nullptr || guest_ != nullptr; }

   private:
    friend class WireUp;
    bool sought_ = false;                    ///< In WireUp::sought_.
    Introduction* dial_ = nullptr;           ///< The dialler's side. nullptr: there is none now.
    Introduction* guest_ = nullptr;          ///< The acceptor's side, once the dialler has proved itself.
    const VerbsAddress* address_ = nullptr;  ///< Of the peer.
    bool checks_ = false;                    ///< A dial is only to show whether somebody listens (check()).
    std::uint8_t next_host_ = 0;             ///< In address_->hosts, to dial, modulo their number.
    std::uint8_t refused_hosts_ = 0;     ///< Bit n: hosts[n] has refused a dial, and none was taken since.
    std::uint64_t retry_at_ns_ = 0;      ///< Earliest next dial.
    std::uint32_t silent_tries_ = 0;     ///< Dials in a row that no kernel answered.
    std::uint64_t silent_since_ns_ = 0;  ///< patience_ns_ when the first of them began.
  };

  enum class Silence : std::uint8_t {
    kUnreachable,  ///< No kernel has answered dials for the peer time-out.
    /// The kernel of the peer has taken a dial, and the peer has not answered for the peer time-out.
    kUnanswered,
  };

  /// What happens. Calls come from seek(), and from what WireUp does in its own time. A call may call any
  /// function of the introducer.
  class Client {
   public:
    /// Somebody who knows the secret says hello as `body.sender`, at `address`. It may be a replay: until
    /// on_offer() nothing may change but that the contact exists, or is dialled (on_knock()). Returns nullptr
    /// if this is no peer of ours, or not any more. Throws std::bad_alloc.
    virtual Contact* meet(const HelloBody& body, const VerbsAddress& address) = 0;
    /// Number of the last link of the contact's lane.
    virtual std::uint32_t last_link(const Contact& contact) const noexcept = 0;
    /// The peer has answered our dial: offer() may follow, at any time. `peers_last_link`: at its side.
    virtual void on_answer(Contact& contact, std::uint32_t peers_last_link) noexcept = 0;
    /// The peer's offer. If we dialled, it answers ours, and ready() or seek() must follow, now. Else offer()
    /// is to follow, at any time.
    virtual void on_offer(Contact& contact, const OfferBody& offer, bool is_answer) noexcept = 0;
    /// The peer's queue pair receives. The introduction has ended.
    virtual void on_ready(Contact& contact) noexcept = 0;
    /// An introduction ended too early after offer() had been allowed: the queue pair made for it is void. If
    /// the contact is sought, it will be dialled again.
    virtual void on_broken(Contact& contact) noexcept = 0;
    /// The peer has dialled and hung up while this process did not poll: it wants a link. May be a replay.
    virtual void on_knock(Contact& contact, std::uint32_t peers_last_link) noexcept = 0;
    /// The peer does not exist any more, or not for us. drop() of all its contacts must follow, now. `why`:
    /// for the log; nullptr: it has ended, which is no fault.
    virtual void on_gone(Contact& contact, const char* why) noexcept = 0;
    virtual void on_silence(Contact& contact, Silence silence) noexcept = 0;

   protected:
    ~Client() = default;
  };

  /// Dials until an introduction succeeds. `address` is the peer's, and stays valid. If the contact is sought
  /// already, has no effect.
  virtual void seek(Contact& contact, const VerbsAddress& address) noexcept = 0;
  /// Dials once, to show whether the peer's process still listens. on_gone() follows if it does not. Has no
  /// effect while other dials need the room.
  /// REQUIRES: there is no link with the contact. If it is sought, has no effect.
  virtual void check(Contact& contact, const VerbsAddress& address) noexcept = 0;
  /// Ends introductions with the contact, without on_broken(). It is not sought any more.
  virtual void drop(Contact& contact) noexcept = 0;
  /// Sends our offer. REQUIRES: on_answer() or on_offer() allowed it, and no on_broken() has come since.
  virtual void offer(Contact& contact, const OfferBody& offer) noexcept = 0;
  /// Says that our queue pair receives. The introduction has ended. REQUIRES: on_offer() with `is_answer`.
  virtual void ready(Contact& contact) noexcept = 0;

 protected:
  ~Introducer() = default;
};

}  // namespace ch3_offload
