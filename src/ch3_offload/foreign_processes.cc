#include "ch3_offload/foreign_processes.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include "engine/card.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {

std::optional<PhysicalId> parse_process_name(std::string_view name) noexcept {
  const std::size_t slash = name.find('/');
  std::array<char, INET_ADDRSTRLEN> address{};
  if (slash == std::string_view::npos || slash >= address.size()) return {};
  std::memcpy(address.data(), name.data(), slash);
  in_addr parsed{};
  if (::inet_pton(AF_INET, address.data(), &parsed) != 1) return {};
  PhysicalId id{ntohl(parsed.s_addr), 0};
  const std::string_view port = name.substr(slash + 1);
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), id.pid);
  if (error != std::errc{} || stop != port.data() + port.size() || !id.is_possible()) return {};
  return id;
}

Result<std::unique_ptr<ForeignProcesses>> ForeignProcesses::create(const ch3_offload_config_t& config,
                                                                   Port& port, ProcessDriver* processor,
                                                                   const LoneLog& log) {
  Result<UserKey> key = UserKey::of_environment();
  if (!key.ok()) return key.error();
  ch3_offload_config_t theirs = config;
  set_lone(theirs, key.value());
  std::unique_ptr<ForeignProcesses> made(new ForeignProcesses(port));
  std::vector<Provider*> added;
  if (processor == nullptr) {
    auto providers = make_lone_providers(theirs, key.value(), log, config.job_size);
    if (!providers.ok()) return providers.error();
    made->providers_ = std::move(providers.value());
    for (const auto& provider : made->providers_) added.push_back(provider.get());
  }
  Result<std::string> card = processor != nullptr ? processor->reach_foreign(key.value()) : card_of(added);
  if (!card.ok()) return card.error();

  Introductions::Config introductions = introductions_config(theirs, key.value(), card.value(), log);
  introductions.first_peer = PeerId{config.job_size};
  introductions.peer_limit = std::min(kMostLonePeers, config.job_size + kMostForeignPeers);
  auto book = Introductions::create(introductions);
  if (!book.ok()) return book.error();
  made->book_ = std::move(book.value());
  if (processor == nullptr && !port.add_providers(added))
    return Error{Status::kNoMemory, 0, "no memory for the providers of processes of other worlds"};
  return made;
}

std::string ForeignProcesses::name() const { return PhysicalId::of(book_->self()).to_string(); }

Status ForeignProcesses::find(std::string_view name, PeerId& peer) noexcept {
  const std::optional<PhysicalId> id = parse_process_name(name);
  const Status status = id ? book_->find(id->process(), peer) : Status::kUnsupported;
  if (status != Status::kOk || !failed_.contains(peer)) return status;
  try {
    found_again_.push_back(peer);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  port_.events().others = 1;
  return status;
}

/// Without memory, who finds it again is told by an operation that fails, if the port tells at once.
void ForeignProcesses::failed(PeerId peer) noexcept {
  book_->forget(peer);
  try {
    failed_.insert(peer);
  } catch (const std::bad_alloc&) {
    return;
  }
}

bool ForeignProcesses::next_failed(PeerId& peer) noexcept {
  if (found_again_.empty()) return false;
  peer = found_again_.back();
  found_again_.pop_back();
  return true;
}

std::string ForeignProcesses::name_of(PeerId peer) const {
  const auto known = known_.find(index_of(peer));
  return known == known_.end() ? std::string() : PhysicalId::of(known->second).to_string();
}

std::uint64_t ForeignProcesses::next_due_ns() const noexcept { return book_->next_due_ns(); }

/// Without memory it stays nameless, and cannot be told from others.
void ForeignProcesses::on_process(PeerId peer, ProcessId process, UserId) noexcept {
  try {
    known_[index_of(peer)] = process;
  } catch (const std::bad_alloc&) {
    port_.fail_peer(peer);
  }
}

/// A process that was in a world, and cannot be reached, has failed as far as MPI goes.
void ForeignProcesses::on_card(PeerId peer, std::string_view card) noexcept {
  card.empty() ? port_.fail_peer(peer) : port_.introduce(peer, card);
}

bool ForeignProcesses::on_unused(PeerId peer) noexcept {
  const std::uint64_t now_ns = monotonic_ns();
  if (now_ns < forget_at_ns_) return false;
  if (!port_.forget_peer(peer)) {
    forget_at_ns_ = now_ns + kForgetAgainNs;
    return false;
  }
  known_.erase(index_of(peer));
  failed_.erase(peer);
  return true;
}

}  // namespace ch3_offload
