#include "nic/shared_arena.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace ch3_offload {
namespace {

std::size_t distance(const std::byte* from, const std::byte* to) noexcept {
  return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
}

}  // namespace

SharedArena::~SharedArena() {
  for (auto& [address, file] : files_)
    if (file.used > 0) file.mapping.release();
}

void SharedArena::end_sharing() noexcept {
  for (const auto& [address, file] : files_)
    if (processor_ != nullptr) processor_->unshare(address);
  detach();
}

std::byte* SharedArena::allocate(std::size_t length_bytes) noexcept {
  const auto wanted = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(length_bytes, 1) - 1));
  const unsigned order = std::max(wanted, kLeastOrder);
  if (order >= kOrders) return nullptr;
  Blocks& blocks = blocks_[order];
  try {
    if (length_bytes > kMostKeptBytes) return allocate_alone(length_bytes);
    if (blocks.free.empty() && !make_file(order)) return nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  std::byte* const block = blocks.free.back();
  blocks.free.pop_back();
  ++find(block)->second.used;
  const std::size_t block_bytes = std::size_t{1} << order;
  if (block_bytes > kSmallBytes) kept_bytes_ -= block_bytes;
  return block;
}

/// Adds a file to the arena, and its blocks to those that are free. False: it cannot be had. Throws
/// std::bad_alloc; then nothing was done.
bool SharedArena::make_file(unsigned order) {
  const std::size_t block_bytes = std::size_t{1} << order;
  const std::size_t least_bytes = std::max(block_bytes, kChunkBytes);
  const std::size_t before_bytes = std::bit_floor(blocks_[order].count * block_bytes);
  std::size_t file_bytes = std::max(least_bytes, std::min(before_bytes, kMostFileBytes));
  for (; file_bytes >= least_bytes; file_bytes /= 2)
    if (make_file(order, file_bytes)) return true;
  return false;
}

bool SharedArena::make_file(unsigned order, std::size_t file_bytes) {
  const std::size_t block_bytes = std::size_t{1} << order;
  Blocks& blocks = blocks_[order];
  blocks.free.reserve(blocks.count + file_bytes / block_bytes);
  const auto entry = map_file(order, file_bytes);
  if (entry == files_.end()) return false;
  std::byte* const address = entry->second.mapping.address();
  for (std::size_t offset = file_bytes; offset > 0; offset -= block_bytes)
    blocks.free.push_back(address + offset - block_bytes);
  blocks.count += file_bytes / block_bytes;
  if (block_bytes > kSmallBytes) kept_bytes_ += file_bytes;
  return true;
}

/// files_.end(): it cannot be had. Throws std::bad_alloc; then nothing was done.
SharedArena::Files::iterator SharedArena::map_file(unsigned order, std::size_t file_bytes) {
  Result<FileDescriptor> file = make_reserved_file("ch3-offload-memory", file_bytes);
  if (!file.ok()) return files_.end();
  Result<Mapping> mapping = map_shared(file.value(), file_bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return files_.end();
  std::byte* const address = mapping.value().address();
  const auto entry =
      files_.try_emplace(address, File{file_bytes, order, std::move(mapping.value()), {}, 0}).first;
  if (processor_ == nullptr || !processor_->share(address, file_bytes, file.value())) {
    files_.erase(entry);
    return files_.end();
  }
  if (open_files_ < kMostOpenFiles) {
    entry->second.open_file = std::move(file.value());
    ++open_files_;
  }
  return entry;
}

std::byte* SharedArena::allocate_alone(std::size_t length_bytes) {
  const auto entry = map_file(kAlone, length_bytes);
  if (entry == files_.end()) return nullptr;
  entry->second.used = 1;
  return entry->second.mapping.address();
}

/// REQUIRES: all its blocks are free, and their kind is beyond kSmallBytes.
void SharedArena::drop_file(Files::iterator file) noexcept {
  const std::byte* const address = file->first;
  const std::size_t file_bytes = file->second.length_bytes;
  if (file->second.order != kAlone) {
    Blocks& blocks = blocks_[file->second.order];
    blocks.count -=
        std::erase_if(blocks.free, [&](const std::byte* one) { return distance(address, one) < file_bytes; });
    kept_bytes_ -= file_bytes;
  }
  if (file->second.open_file.valid()) --open_files_;
  if (processor_ != nullptr) processor_->unshare(address);
  files_.erase(file);
}

/// The file whose memory `address` is in. files_.end(): none.
SharedArena::Files::iterator SharedArena::find(const std::byte* address) noexcept {
  auto found = files_.upper_bound(address);
  if (found == files_.begin()) return files_.end();
  --found;
  return distance(found->first, address) < found->second.length_bytes ? found : files_.end();
}

bool SharedArena::give_back(std::byte* block) noexcept {
  const auto found = find(block);
  if (found == files_.end() || found->second.order == kForeign) return false;
  const unsigned order = found->second.order;
  if (order == kAlone) {
    drop_file(found);
    return true;
  }
  const std::size_t block_bytes = std::size_t{1} << order;
  --found->second.used;
  blocks_[order].free.push_back(block);
  if (block_bytes <= kSmallBytes) return true;
  kept_bytes_ += block_bytes;
  if (found->second.used == 0 && kept_bytes_ > kMostKeptBytes) drop_file(found);
  return true;
}

bool SharedArena::adopt(std::byte* address, std::size_t length_bytes, const FileDescriptor& file) noexcept {
  try {
    const auto [entry, is_new] = files_.try_emplace(address);
    if (!is_new) return false;
    entry->second.length_bytes = length_bytes;
    if (processor_ != nullptr && processor_->share(address, length_bytes, file)) return true;
    files_.erase(entry);
  } catch (const std::bad_alloc&) {
    // As if the processor could not map it.
  }
  return false;
}

void SharedArena::disown(const std::byte* address) noexcept {
  const auto found = files_.find(address);
  if (found == files_.end() || found->second.order != kForeign) return;
  if (processor_ != nullptr) processor_->unshare(address);
  files_.erase(found);
}

bool SharedArena::contains(const std::byte* address, std::size_t length_bytes) noexcept {
  const auto found = find(address);
  return found != files_.end() &&
         length_bytes <= found->second.length_bytes - distance(found->first, address);
}

MemoryPlace SharedArena::locate(const std::byte* address, std::size_t length_bytes) noexcept {
  if (!contains(address, length_bytes)) return {};
  const auto& [begin, file] = *find(address);
  struct stat status {};
  if (!file.open_file.valid() || ::fstat(file.open_file.get(), &status) != 0) return {};
  return {::getpid(), file.open_file.get(), status.st_ino, file.length_bytes, distance(begin, address)};
}

}  // namespace ch3_offload
