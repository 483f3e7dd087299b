#include "nic/cores.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "rdma/processor_set.h"

namespace ch3_offload {

namespace {

/// The beginning of a file; empty: it cannot be read.
std::string read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) return {};
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

/// Takes the piece of `text` before `separator`, or all of it.
std::string_view take_piece(std::string_view& text, char separator) noexcept {
  const std::size_t end = text.find(separator);
  const std::string_view piece = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return piece;
}

/// -1: no number ("max").
std::int64_t number_in(std::string_view text) noexcept {
  std::int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Whole cores that `quota` microseconds of processor time in each `period` are. Nothing: no limit.
std::optional<std::uint32_t> whole_cores(std::string_view quota, std::string_view period) noexcept {
  constexpr std::int64_t kMostCores = 1 << 20;
  const std::int64_t quota_us = number_in(quota);
  const std::int64_t period_us = number_in(period);
  if (quota_us < 0 || period_us <= 0) return {};
  return static_cast<std::uint32_t>(std::min(quota_us / period_us, kMostCores));
}

/// The quota of one control group, in version 2's file or version 1's.
std::optional<std::uint32_t> quota_of_group(const std::string& directory) {
  const std::string limits = read_text(directory + "/cpu.max");
  std::string_view period = limits;
  const std::string_view quota = take_piece(period, ' ');
  if (!limits.empty()) return whole_cores(quota, period);
  return whole_cores(read_text(directory + "/cpu.cfs_quota_us"), read_text(directory + "/cpu.cfs_period_us"));
}

bool has_cpu_controller(std::string_view controllers) noexcept {
  while (!controllers.empty())
    if (take_piece(controllers, ',') == "cpu") return true;
  return false;
}

}  // namespace

std::optional<std::uint32_t> quota_cores(std::string_view membership, const std::string& mounts) {
  std::optional<std::uint32_t> least;
  // Each line is ID:CONTROLLERS:PATH. Version 2's names no controllers.
  while (!membership.empty()) {
    std::string_view path = take_piece(membership, '\n');
    take_piece(path, ':');
    const std::string controllers(take_piece(path, ':'));
    if (!controllers.empty() && !has_cpu_controller(controllers)) continue;
    const std::string hierarchy = mounts + "/" + controllers;
    // In a container, the path may be the host's while the mount begins at the container's own group. So
    // every ancestor is looked for; one that is not there has no quota.
    for (;; path = path.substr(0, path.rfind('/'))) {
      if (const auto cores = quota_of_group(hierarchy + std::string(path)))
        least = std::min(least.value_or(*cores), *cores);
      if (path.rfind('/') == std::string_view::npos) break;
    }
  }
  return least;
}

Cores usable_cores() {
  // Launchers often bind each process to cores of its own, but not themselves: their cores are the job's.
  const auto count = [](pid_t process) { return static_cast<std::uint32_t>(affinity_of(process).size()); };
  const std::uint32_t own = count(0);
  Cores cores{std::max({own, count(getppid()), 1U}), std::max(own, 1U)};
  if (const auto quota = quota_cores(read_text("/proc/self/cgroup"), "/sys/fs/cgroup"))
    cores.of_node = std::min(cores.of_node, *quota);
  return cores;
}

}  // namespace ch3_offload
