#include "nic/client_shares.h"

#include <sys/socket.h>

#include <iterator>
#include <new>
#include <utility>

namespace ch3_offload {

Receipt ClientShares::listen() noexcept {
  Offer offer;
  const Receipt receipt =
      receive_with_files(socket_, std::as_writable_bytes(std::span(&offer.share, 1)), {&offer.file, 1});
  switch (receipt) {
    case Receipt::kMessage:
      if (offer_ || offer.share.magic != NicdShare::kMagic) return Receipt::kInvalid;
      offer_ = std::move(offer);
      return receipt;
    case Receipt::kNoDescriptor: return Receipt::kNothing;  // share() takes the message away.
    case Receipt::kWithoutFiles: return Receipt::kInvalid;
    default: return receipt;
  }
}

bool ClientShares::share(std::uint64_t address, std::uint64_t length_bytes) noexcept {
  if (!offer_ && listen() != Receipt::kMessage) {
    // If no descriptor was left for its file, the message is still there: the next one must not follow it.
    std::byte rest;
    [[maybe_unused]] const ssize_t dropped = ::recv(socket_.get(), &rest, sizeof rest, MSG_DONTWAIT);
    return false;
  }
  const Offer offer = *std::exchange(offer_, std::nullopt);
  auto& shared = files_->shared;
  const bool is_it = offer.share.address == address && offer.share.length_bytes == length_bytes;
  if (!is_it || length_bytes == 0 || address > UINT64_MAX - length_bytes ||
      shared.size() + files_->unshared.size() >= kMostFiles || !is_sealed_file(offer.file, length_bytes))
    return false;
  const auto next = shared.lower_bound(address);
  if (next != shared.end() && next->first - address < length_bytes) return false;
  if (next != shared.begin()) {
    const auto& [before, file] = *std::prev(next);
    if (address - before < file.mapping->length_bytes()) return false;
  }
  try {
    Result<Mapping> mapping = map_shared(offer.file, length_bytes, MapAccess::kReadWrite);
    if (!mapping.ok()) return false;
    auto mapped = std::make_unique<const Mapping>(std::move(mapping.value()));
    const auto unmap = [watch = watch_](const Mapping* its) {
      if (watch->is_gone != nullptr) watch->is_gone(watch->context, its->address(), its->length_bytes());
      delete its;
    };
    shared.emplace_hint(next, address, File{std::shared_ptr<const Mapping>(mapped.release(), unmap), {}});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool ClientShares::unshare(std::uint64_t address) noexcept {
  auto file = files_->shared.extract(address);
  if (file.empty()) return false;
  std::erase_if(files_->unshared, [](const auto& one) { return one.second.in_use.expired(); });
  file.mapped().in_use = std::exchange(file.mapped().mapping, nullptr);
  if (!file.mapped().in_use.expired()) files_->unshared.insert(std::move(file));
  return true;
}

ClientShares::Found ClientShares::find(std::uint64_t address, std::uint64_t length_bytes) const noexcept {
  auto found = files_->shared.upper_bound(address);
  if (found == files_->shared.begin()) return {};
  --found;
  const auto& [begin, file] = *found;
  const std::uint64_t offset = address - begin;
  const std::uint64_t file_bytes = file.mapping->length_bytes();
  if (offset >= file_bytes || length_bytes > file_bytes - offset) return {};
  return {file.mapping->address() + offset, file.mapping};
}

std::shared_ptr<const void> ClientShares::leave_mapped() noexcept {
  for (auto& [address, file] : files_->unshared) file.mapping = file.in_use.lock();
  return files_;
}

}  // namespace ch3_offload
