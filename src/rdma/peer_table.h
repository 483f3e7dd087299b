// What a process keeps of its peers, by number. Where a number is used again after its peer has gone, nobody
// is taken for who had it before: a PeerId is a slot and a generation (provider.h), and each slot knows which
// generation it is in. forget() ends the peer and begins the next generation. A handshake or an operation
// that names an ended one finds nobody. All tables of a process (its engine's, its providers') forget a peer
// together, so they agree.
//
// Threads: one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "rdma/provider.h"

namespace ch3_offload {

/// `T` has a member `id`, and is made from a PeerId.
template <class T>
class PeerTable {
 public:
  /// Null: nobody is known by that number, or another generation is.
  T* find(PeerId id) const noexcept {
    T* const peer = at(id);
    return peer != nullptr && peer->id == id ? peer : nullptr;
  }
  /// The same. REQUIRES: the number is not of an ended generation.
  T* at(PeerId id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    return slot < size_ ? peers_[slot].get() : nullptr;
  }
  /// Whether the number may name somebody: its generation is the slot's.
  bool is_current(PeerId id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    return generation_of(id) == (slot < generations_.size() ? generations_[slot] : 0);
  }

  /// REQUIRES: is_current(id), and nobody has that number. Throws std::bad_alloc; then nothing was done.
  T& make(PeerId id) {
    make_room(id);
    std::unique_ptr<T>& peer = peers_[slot_of(id)];
    peer = std::make_unique<T>(id);
    return *peer;
  }
  /// The number is not used any more: frees what is kept of the peer. Returns false without memory: nothing
  /// was done. If the number is of an ended generation, has no effect.
  bool forget(PeerId id) noexcept {
    if (!is_current(id)) return true;
    try {
      make_room(id);
    } catch (const std::bad_alloc&) {
      return false;
    }
    peers_[slot_of(id)].reset();
    generations_[slot_of(id)] = static_cast<std::uint16_t>(generation_of(next_generation(id)));
    return true;
  }

  // By slot; null where nobody is known.
  std::size_t size() const noexcept { return peers_.size(); }
  T* operator[](std::size_t slot) const noexcept { return peers_[slot].get(); }
  auto begin() const noexcept { return peers_.begin(); }
  auto end() const noexcept { return peers_.end(); }

 private:
  void make_room(PeerId id) {
    const std::size_t slot = slot_of(id);
    if (slot >= generations_.size()) generations_.resize(slot + 1);
    if (slot >= peers_.size()) peers_.resize(slot + 1);
    size_ = peers_.size();
  }

  std::vector<std::unique_ptr<T>> peers_;
  std::size_t size_ = 0;  ///< peers_.size(), which is a difference and takes longer.
  std::vector<std::uint16_t> generations_;
};

}  // namespace ch3_offload
