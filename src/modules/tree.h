// The place of a process in a tree over all processes of a group, whose root is any of them.
//
// Two shapes. In a k-ary tree each process has up to k children. In a k-nomial tree, the shape of MPI's usual
// broadcast, a process whose number from the root on ends with j zeros to the base k has up to (k - 1) children
// for each of these. REQUIRES for all: rank and root are below size, and degree is at least 1, of a k-nomial
// tree at least 2.
//
// Threads: any. Allocation: the vectors.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ch3_offload {

enum class TreeShape : std::uint8_t { kKary, kKnomial };

struct Tree {
  TreeShape shape = TreeShape::kKary;
  std::uint32_t degree = 2;
  std::uint32_t root = 0;
  std::uint32_t size = 1;
};

/// Nothing: it is the root.
std::optional<std::uint32_t> parent_in(const Tree& tree, std::uint32_t rank) noexcept;
/// Those with the largest trees below them come first. Throws std::bad_alloc.
std::vector<std::uint32_t> children_in(const Tree& tree, std::uint32_t rank);

}  // namespace ch3_offload
