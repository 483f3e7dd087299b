// Trees: whatever the size, degree and root, each process is the child of one other, and all hang together.

#include "modules/tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace ch3_offload {
namespace tree_test {

void expect_a_tree(const Tree& tree) {
  std::vector<int> reached(tree.size, 0);
  std::vector<std::uint32_t> next = {tree.root};
  ++reached[tree.root];
  EXPECT_EQ(parent_in(tree, tree.root), std::nullopt);
  while (!next.empty()) {
    const std::uint32_t rank = next.back();
    next.pop_back();
    for (const std::uint32_t child : children_in(tree, rank)) {
      ASSERT_LT(child, tree.size);
      EXPECT_EQ(parent_in(tree, child), rank);
      ++reached[child];
      ASSERT_EQ(reached[child], 1);
      next.push_back(child);
    }
  }
  EXPECT_EQ(reached, std::vector<int>(tree.size, 1)) << tree.size << ", degree " << tree.degree;
}

TEST(Tree, ReachesEachProcessOnce) {
  for (const TreeShape shape : {TreeShape::kKary, TreeShape::kKnomial})
    for (std::uint32_t size = 1; size <= 40; ++size)
      for (const std::uint32_t degree : {1U, 2U, 3U, 7U, 1'000'000U})
        for (const std::uint32_t root : {0U, size / 3, size - 1})
          if (shape == TreeShape::kKary || degree > 1) expect_a_tree({shape, degree, root, size});
}

TEST(Tree, OfLargeGroupsDoesNotOverflow) {
  for (const TreeShape shape : {TreeShape::kKary, TreeShape::kKnomial}) {
    const Tree tree{shape, 1'000'000, 4'000'000'000U, 4'294'967'295U};
    for (const std::uint32_t rank : {0U, 3'999'999'999U, 4'000'000'000U, 4'294'967'294U})
      for (const std::uint32_t child : children_in(tree, rank)) {
        ASSERT_LT(child, tree.size);
        ASSERT_EQ(parent_in(tree, child), rank);
      }
  }
}

TEST(Tree, HasTheShapeOfMpisBroadcast) {
  const Tree tree{TreeShape::kKnomial, 2, 0, 8};
  EXPECT_EQ(children_in(tree, 0), (std::vector<std::uint32_t>{4, 2, 1}));
  EXPECT_EQ(children_in(tree, 4), (std::vector<std::uint32_t>{6, 5}));
  EXPECT_EQ(parent_in(tree, 7), 6U);
}

}  // namespace tree_test
}  // namespace ch3_offload
