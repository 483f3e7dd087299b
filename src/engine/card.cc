#include "engine/card.h"

#include <charconv>
#include <cstdint>

#include "engine/wire.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kKnownAs = "as=";
constexpr std::string_view kOwn = "to=";

/// One spelling: decimal, without sign and leading zeros.
bool parse_id(std::string_view text, PeerId& id) noexcept {
  std::uint32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) return false;
  if (text.size() > 1 && text.starts_with('0')) return false;
  id = PeerId{number};
  return true;
}

}  // namespace

std::string card_version() { return "v=" + std::to_string(wire::kWireVersion); }

std::string card_of(std::span<Provider* const> providers) {
  std::string card = card_version();
  for (const Provider* const provider : providers) card += ";" + provider->local_address();
  return card;
}

std::string_view next_piece(std::string_view& list, char separator) noexcept {
  const std::size_t end = list.find(separator);
  const std::string_view piece = list.substr(0, end);
  list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
  return piece;
}

std::optional<Card> parse_card(std::string_view text) noexcept {
  Card card;
  card.version = next_piece(text, ';');
  card.addresses = text;
  if (!text.starts_with(kKnownAs) && !text.starts_with(kOwn)) return card;
  const std::string_view known_as = next_piece(text, ';');
  const std::string_view own = next_piece(text, ';');
  PeerNames names;
  if (!known_as.starts_with(kKnownAs) || !parse_id(known_as.substr(kKnownAs.size()), names.known_as) ||
      !own.starts_with(kOwn) || !parse_id(own.substr(kOwn.size()), names.own))
    return {};
  card.names = names;
  card.addresses = text;
  return card;
}

std::string card_with_names(std::string_view text, const PeerNames& names) {
  std::string_view addresses = text;
  std::string card(next_piece(addresses, ';'));
  card += ";as=" + std::to_string(index_of(names.known_as)) + ";to=" + std::to_string(index_of(names.own));
  if (!addresses.empty()) card.append(";").append(addresses);
  return card;
}

}  // namespace ch3_offload
