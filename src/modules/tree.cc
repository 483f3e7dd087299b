#include "modules/tree.h"

#include <algorithm>

namespace ch3_offload {
namespace {

std::uint32_t from_root(const Tree& tree, std::uint32_t rank) noexcept {
  return rank >= tree.root ? rank - tree.root : rank + (tree.size - tree.root);
}
std::uint32_t rank_of(const Tree& tree, std::uint64_t number) noexcept {
  return static_cast<std::uint32_t>((number + tree.root) % tree.size);
}

}  // namespace

std::optional<std::uint32_t> parent_in(const Tree& tree, std::uint32_t rank) noexcept {
  const std::uint64_t number = from_root(tree, rank);
  if (number == 0) return std::nullopt;
  if (tree.shape == TreeShape::kKary) return rank_of(tree, (number - 1) / tree.degree);
  std::uint64_t step = 1;
  while (number % (step * tree.degree) == 0) step *= tree.degree;
  return rank_of(tree, number - number % (step * tree.degree));
}

std::vector<std::uint32_t> children_in(const Tree& tree, std::uint32_t rank) {
  const std::uint64_t number = from_root(tree, rank);
  std::vector<std::uint32_t> children;
  if (tree.shape == TreeShape::kKary) {
    const std::uint64_t first = number * tree.degree + 1;
    for (std::uint64_t child = first; child < std::min<std::uint64_t>(first + tree.degree, tree.size);
         ++child)
      children.push_back(rank_of(tree, child));
    return children;
  }
  for (std::uint64_t step = 1; step < tree.size && number % (step * tree.degree) == 0; step *= tree.degree)
    for (std::uint64_t i = 1; i < tree.degree && number + i * step < tree.size; ++i)
      children.push_back(rank_of(tree, number + i * step));
  std::ranges::reverse(children);
  return children;
}

}  // namespace ch3_offload
