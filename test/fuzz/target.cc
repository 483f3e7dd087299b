#include "fuzz/target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ch3_offload::fuzz {

namespace {
constinit const Target* first_target = nullptr;  // Set before main() runs.
}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void require_none(const std::string& flaw) { require(flaw.empty(), flaw.c_str()); }

void touch(std::span<const std::byte> bytes) noexcept {
  std::byte sum{};
  for (const std::byte byte : bytes) sum ^= byte;
  [[maybe_unused]] volatile std::byte kept = sum;
}

Target::Target(const char* folder, Run runner, MakeSeeds make_seeds) noexcept
    : name_(folder), run_(runner), seeds_(make_seeds), next_(first_target) {
  first_target = this;
}

const Target* Target::first() noexcept { return first_target; }

std::span<const std::byte> Input::bytes(std::size_t length) noexcept {
  const auto taken = rest_.first(std::min(length, rest_.size()));
  rest_ = rest_.subspan(taken.size());
  return taken;
}

std::uint64_t Input::number(std::size_t length) noexcept {
  const auto taken = bytes(length);
  std::uint64_t value = 0;
  if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());  // Little-endian, as wire.h asserts.
  return value;
}

Seed& Seed::bytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

Seed& Seed::number(std::uint64_t value, std::size_t length) {
  return bytes(std::as_bytes(std::span(&value, 1)).first(length));
}

}  // namespace ch3_offload::fuzz
