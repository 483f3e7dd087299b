#include "rdma/processor_set.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace ch3_offload {
namespace processor_set_test {

using List = std::vector<std::uint32_t>;

TEST(ProcessorList, KeepsItsOrderAndItsRepetitions) {
  EXPECT_EQ(parse_processors("3,7-9"), (List{3, 7, 8, 9}));
  EXPECT_EQ(parse_processors("5,1,5"), (List{5, 1, 5}));
  EXPECT_EQ(parse_processors("0"), List{0});
  EXPECT_EQ(parse_processors("2-2"), List{2});
}

TEST(ProcessorList, OfAnythingElseIsNone) {
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "9-7", "-1", "1-", "1-2-3", "a", "1 ,2", "0x1", "1;2",
                           "70000", "4294967296", "0-4294967295"})
    EXPECT_EQ(parse_processors(text), std::nullopt) << text;
}

TEST(ProcessorList, HasAnEnd) {
  EXPECT_EQ(parse_processors("0-65535")->size(), 65536U);
  EXPECT_EQ(parse_processors("0-65535,1"), std::nullopt);
}

TEST(ProcessorSet, IsWrittenAsAList) {
  EXPECT_EQ(to_text({}), "");
  EXPECT_EQ(to_text({3, 7, 8, 9}), "3,7-9");
  EXPECT_EQ(to_text({0, 1, 4}), "0-1,4");
}

TEST(ProcessorSet, OfAProcessIsItsAffinityMask) {
  EXPECT_FALSE(affinity_of(0).empty());
  EXPECT_EQ(affinity_of(getpid()), affinity_of(0));
}

TEST(ProcessorSet, BindsAThreadAndNoOther) {
  const ProcessorSet before = affinity_of(0);
  const ProcessorSet last{*before.rbegin()};
  ProcessorSet seen;
  std::thread([&] {
    EXPECT_EQ(bind_thread(pthread_self(), last), 0);
    seen = affinity_of(0);
  }).join();
  EXPECT_EQ(seen, last);
  EXPECT_EQ(affinity_of(0), before);
}

TEST(ProcessorSet, WhichTheMachineLacksIsRefused) {
  const ProcessorSet before = affinity_of(0);
  EXPECT_EQ(bind_thread(pthread_self(), {65535}), EINVAL);
  EXPECT_EQ(affinity_of(0), before);
}

}  // namespace processor_set_test
}  // namespace ch3_offload
