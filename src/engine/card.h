// The card of a process (docs/wire-format.md): what another one must know to send to it.
//
//   v=10;as=42;to=3;shm:1:...;verbs:4/...
//
// `as` and `to` are there where the two processes have no common numbers (PeerNames).
//
// Threads: any. Blocking: none.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rdma/provider.h"

namespace ch3_offload {

/// What the cards of this version of the engine's messages begin with (wire::kWireVersion). Throws
/// std::bad_alloc.
std::string card_version();

/// A card as its reader takes it apart.
struct Card {
  std::string_view version;        ///< As card_version(). Empty: the card is.
  std::optional<PeerNames> names;  ///< Nothing: the processes have common numbers.
  std::string_view addresses;      ///< With semicolons between.
};

/// Takes a card apart. Any input. Returns nothing if it has one of the two names alone, or one that is no
/// decimal number of 32 bits.
std::optional<Card> parse_card(std::string_view card) noexcept;

/// The card of a process with these providers, in order of preference. Throws std::bad_alloc.
std::string card_of(std::span<Provider* const> providers);

/// The same card, for a reader who has these names. REQUIRES: `card` is one without names. Throws
/// std::bad_alloc.
std::string card_with_names(std::string_view card, const PeerNames& names);

/// Splits `list` at `separator`: returns the first piece and shortens `list` to what follows.
std::string_view next_piece(std::string_view& list, char separator) noexcept;

}  // namespace ch3_offload
