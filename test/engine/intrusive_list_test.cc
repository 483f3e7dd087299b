// Lists through their elements, with both kinds of hooks, against a model.

#include "engine/intrusive_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>

namespace ch3_offload {
namespace {

template <template <class> class Hook>
struct Element {
  Hook<Element> hook{};
};

template <template <class> class Hook>
void expect_as_a_deque() {
  using Item = Element<Hook>;
  using List = IntrusiveList<Item, &Item::hook, true>;
  std::array<Item, 6> items;
  std::deque<Item*> model;
  List list;
  std::mt19937 random(1);
  for (int step = 0; step < 20'000; ++step) {
    Item& item = items[random() % items.size()];
    const auto found = std::find(model.begin(), model.end(), &item);
    if (found == model.end()) {
      list.push_back(item);
      model.push_back(&item);
    } else if (random() % 4 == 0) {
      EXPECT_EQ(list.pop_front(), model.front());
      model.pop_front();
    } else {
      list.remove(item);
      model.erase(found);
    }
    ASSERT_EQ(list.size(), model.size());
    ASSERT_EQ(list.empty(), model.empty());
    ASSERT_EQ(list.front(), model.empty() ? nullptr : model.front());
    ASSERT_EQ(list.back(), model.empty() ? nullptr : model.back());
    std::deque<Item*> forwards;
    std::deque<Item*> backwards;
    for (Item* at = list.front(); at != nullptr; at = List::next(*at)) forwards.push_back(at);
    for (Item* at = list.back(); at != nullptr; at = List::previous(*at)) backwards.push_front(at);
    ASSERT_EQ(forwards, model);
    ASSERT_EQ(backwards, model);
    if constexpr (requires { item.hook.linked(); }) {
      for (const Item& each : items)
        ASSERT_EQ(each.hook.linked(), std::find(model.begin(), model.end(), &each) != model.end());
    }
  }
}

TEST(IntrusiveList, WithHooksThatKnowWhetherTheyAreLinkedIsAList) { expect_as_a_deque<ListHook>(); }
TEST(IntrusiveList, WithBareHooksIsAList) { expect_as_a_deque<BareHook>(); }

}  // namespace
}  // namespace ch3_offload
