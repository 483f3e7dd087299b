// What a client asks of an introducer, and is told. SocketIntroducer makes introductions over sockets.
//
// The introducer does what all introductions have in common. It does not know what the two processes want of
// each other: its client fills in the bodies of frames, and judges those of the other side.
//
// Threads: one at a time. Nothing blocks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "rdma/fork_closing.h"
#include "rdma/introduction/frames.h"
#include "rdma/introduction/socket_address.h"

namespace ch3_offload {

class SocketIntroducer;
struct Introduction;

class Introducer {
 public:
  /// Another process, or one of several purposes for which it is introduced to this one. Owned by the client.
  /// Outlives the introductions with it.
  class Contact {
   public:
    Contact() = default;
    Contact(const Contact&) = delete;
    Contact& operator=(const Contact&) = delete;
    bool is_sought() const noexcept { return sought_; }
    /// It is sought, or an introduction with it goes on.
    bool is_in_use() const noexcept { return sought_ || dial_ != nullptr || guest_ != nullptr; }
    /// What became of dials since it was sought.
    enum class Answer : std::uint8_t {
      kNotDialled,
      kNone,   ///< No kernel has taken the last dial, or whoever took it has hung up, refused us or erred.
      kTaken,  ///< A kernel has taken the last dial.
    };
    Answer answer() const noexcept { return answer_; }

   protected:
    ~Contact() = default;

   private:
    friend class SocketIntroducer;
    bool sought_ = false;  ///< In SocketIntroducer::sought_.
    bool checks_ = false;  ///< A dial is only to show whether somebody listens (check()).
    Answer answer_ = Answer::kNotDialled;
    std::uint8_t next_address_ = 0;       ///< To dial, modulo their number.
    std::uint8_t refused_addresses_ = 0;  ///< Bit n: address n has refused a dial, and none was taken since.
    Introduction* dial_ = nullptr;        ///< The dialler's side. nullptr: there is none now.
    Introduction* guest_ = nullptr;       ///< The acceptor's side, once the dialler has proved itself.
    std::uint64_t retry_at_ns_ = 0;       ///< Earliest next dial.
    std::uint32_t silent_tries_ = 0;      ///< Dials in a row that no kernel answered.
    std::uint64_t silent_since_ns_ = 0;   ///< patience_ns() when the first of them began.
    std::uint32_t short_tries_ = 0;       ///< Dials in a row for which there was no descriptor or memory.
    std::uint64_t short_since_ns_ = 0;    ///< patience_ns() at the first of them.
  };

  /// Who has dialled.
  struct Guest {
    Contact* contact = nullptr;  ///< nullptr: it has not said who it is.
    std::uint32_t note = 0;      ///< The client's: on_knock() gives it back.
  };

  enum class Silence : std::uint8_t {
    kUnreachable,  ///< No kernel has answered dials for the time-out.
    /// The kernel of the peer has taken a dial, and the peer has not answered for the time-out.
    kUnanswered,
  };

  /// Knows the contacts, and what is said to them. Calls come from seek() and check(), and from what the
  /// introducer does in its own time. A call that is about a contact may call any function of the introducer.
  class Client {
   public:
    /// How many addresses the contact has: 1 to 8. At any of them the process can be dialled.
    virtual std::size_t addresses(const Contact& contact) const noexcept = 0;
    virtual SocketAddress address(const Contact& contact, std::size_t index) const noexcept = 0;
    /// Whether our dial is the one that counts, of two that cross. One side at most may say so.
    virtual bool our_dial_counts(const Contact& contact) const noexcept = 0;
    /// Fills in the Hello of our dial.
    virtual void say_hello(const Contact& contact, Frame& hello) const noexcept = 0;
    /// Somebody who knows the secret says hello. Fills in the Hello that answers it, and says who it is, if
    /// the other's Hello tells that. It may be a replay: until on_offer() nothing may change but that the
    /// contact exists, or is dialled (on_knock()). Returns why it is refused. Throws std::bad_alloc.
    virtual std::optional<Refusal> meet(const Frame& hello, Guest& guest, Frame& answer) = 0;
    /// As meet(), for a guest whose Hello did not tell who it is. The Offer is no replay.
    virtual std::optional<Refusal> identify(const Frame& offer, Guest& guest) noexcept = 0;
    /// The peer has answered our dial: offer() may follow, at any time. Returns false if the Hello is not the
    /// contact's; then nothing has changed.
    virtual bool on_answer(Contact& contact, const Frame& hello) noexcept = 0;
    /// The peer's offer. If we dialled, it answers ours, and ready(), seek() or drop() must follow, now. Else
    /// offer() is to follow, at any time.
    virtual void on_offer(Contact& contact, const Frame& offer, bool is_answer) noexcept = 0;
    /// The peer has taken our offer. The introduction has ended.
    virtual void on_ready(Contact& contact) noexcept = 0;
    /// Where introductions keep their connection (SocketIntroducer::Config::keeps_connection): it is the
    /// client's from now on. Comes before on_ready(), or out of ready(). The socket does not block, and what
    /// the peer has sent after its last frame is still to be read from it. The kernel watches it for silence
    /// as it did before.
    virtual void on_connection(Contact&, ForkClosedDescriptor /*socket*/) noexcept {}
    /// An introduction ended too early after offer() had been allowed: what was prepared for it is void. If
    /// the contact is sought, it will be dialled again.
    virtual void on_broken(Contact& contact) noexcept = 0;
    /// The peer has dialled and hung up while this process did not poll: it wants an introduction. May be a
    /// replay. `note`: that of its Guest.
    virtual void on_knock(Contact& contact, std::uint32_t note) noexcept = 0;
    /// The peer does not exist any more, or not for us. drop() of all its contacts must follow, now.
    /// `reason`: kNobody if nobody listens at its last address, kShort if this process or the peer had no
    /// descriptor or memory for the time-out (that is logged), else why it has refused us.
    virtual void on_gone(Contact& contact, Refusal reason) noexcept = 0;
    virtual void on_silence(Contact& contact, Silence silence) noexcept = 0;

   protected:
    ~Client() = default;
  };

  /// Dials until an introduction succeeds. If the contact is sought already, has no effect.
  virtual void seek(Contact& contact) noexcept = 0;
  /// Dials once, to show whether the peer's process still listens. on_gone() follows if it does not. Has no
  /// effect while other dials need the room, or if the contact is sought.
  virtual void check(Contact& contact) noexcept = 0;
  /// Ends introductions with the contact, without on_broken(). It is not sought any more.
  virtual void drop(Contact& contact) noexcept = 0;
  /// Sends our offer. REQUIRES: on_answer() or on_offer() allowed it, and no on_broken() has come since.
  virtual void offer(Contact& contact, Frame& offer) noexcept = 0;
  /// Says that the peer's offer is taken. The introduction has ended: the peer may learn of it later, or see
  /// the connection end before it does. REQUIRES: on_offer() with `is_answer`.
  virtual void ready(Contact& contact) noexcept = 0;

 protected:
  ~Introducer() = default;
};

}  // namespace ch3_offload
