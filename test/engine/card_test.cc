#include "engine/card.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

constexpr PeerNames kNames{PeerId{42}, PeerId{3}};

TEST(Card, HasNoNamesWhereNumbersAreCommon) {
  const std::optional<Card> card = parse_card("v=6;shm:1:ab;verbs:4/x");
  ASSERT_TRUE(card);
  EXPECT_EQ(card->version, "v=6");
  EXPECT_FALSE(card->names);
  EXPECT_EQ(card->addresses, "shm:1:ab;verbs:4/x");
}

TEST(Card, NamesStandBehindTheVersion) {
  EXPECT_EQ(card_with_names("v=6;shm:1:ab", kNames), "v=6;as=42;to=3;shm:1:ab");
  EXPECT_EQ(card_with_names("v=6", kNames), "v=6;as=42;to=3");
  const std::optional<Card> card = parse_card("v=6;as=42;to=3;shm:1:ab");
  ASSERT_TRUE(card && card->names);
  EXPECT_EQ(*card->names, kNames);
  EXPECT_EQ(card->addresses, "shm:1:ab");
  EXPECT_EQ(parse_card("v=6;as=4294967295;to=0")->names->known_as, PeerId{UINT32_MAX});
}

TEST(Card, WithWrongNamesIsNone) {
  for (const char* const text :
       {"v=6;as=42", "v=6;to=3", "v=6;to=3;as=42", "v=6;as=;to=3", "v=6;as=42;to=", "v=6;as=-1;to=3",
        "v=6;as=042;to=3", "v=6;as=4294967296;to=3", "v=6;as=4x;to=3", "v=6;as=42;shm:1:ab;to=3"})
    EXPECT_FALSE(parse_card(text)) << text;
  EXPECT_TRUE(parse_card(""));
  EXPECT_TRUE(parse_card(";;;"));
}

}  // namespace
}  // namespace ch3_offload
