// Cards: those that come before they are wanted, and those with names.

#include "engine/card.h"
#include "engine/engine_world.h"
#include "engine/observing_provider.h"

namespace ch3_offload {
namespace {

class EngineIntroduction : public EngineWorld {
 protected:
  /// Engine 0 knows the card of 1 by itself.
  void give_card(std::string_view card) { at(0)->introduce(PeerId{1}, card); }
};

TEST_F(EngineIntroduction, ACardThatComesBeforeItIsWantedIsKept) {
  make_strangers();
  give_card(cards[1]);
  TestReceive request(8);
  TestSend message(8);
  receive(1, request);
  send(0, 1, message);
  settle();
  expect_received(request, message);
  EXPECT_EQ(at(0)->counters().cards_wanted, 0u);
}

TEST_F(EngineIntroduction, ACardThatComesBetweenTheSendAndTheQuestionIsUsed) {
  make_strangers();
  TestReceive request(8);
  TestSend message(8);
  receive(1, request);
  send(0, 1, message);
  give_card(cards[1]);
  settle();
  expect_received(request, message);
  EXPECT_EQ(at(0)->counters().cards_wanted, 0u);
}

TEST_F(EngineIntroduction, ACardIsAskedForOnceThoughTheProviderRanShort) {
  for (const bool is_given : {false, true}) {
    make_strangers();
    ObservingProvider provider(*at(0).provider, [](PeerId, std::span<const std::byte>) {});
    provider.shortages = 1;
    Provider* const providers[] = {&provider};
    at(0).engine = std::make_unique<HostDriver>(engine_config, providers);
    if (is_given) give_card(cards[1]);
    TestReceive request(8);
    TestSend first(8), second(8, 2);
    receive(1, request);
    send(0, 1, first);
    settle();
    EXPECT_EQ(outcome(first), Status::kNoMemory);
    send(0, 1, second);
    settle();
    expect_received(request, second);
    EXPECT_EQ(at(0)->counters().cards_wanted, is_given ? 0u : 1u);
    at(0).engine.reset();  // Before its provider.
  }
}

TEST_F(EngineIntroduction, AnEmptyCardFailsAPeerThatIsNotWantedYet) {
  make_strangers();
  give_card("");
  settle();
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kUnreachable}}));
  TestSend message(8);
  send(0, 1, message);
  settle();
  EXPECT_EQ(outcome(message), Status::kPeerFailed);
}

TEST_F(EngineIntroduction, NamesReachTheProvider) {
  make_strangers();
  give_card(card_with_names(cards[1], {PeerId{0}, PeerId{1}}));  // Those of the fake.
  TestReceive request(8);
  TestSend message(8);
  receive(1, request);
  send(0, 1, message);
  settle();
  expect_received(request, message);
}

TEST_F(EngineIntroduction, NamesThatTheProviderDoesNotTakeFailThePeer) {
  make_strangers();
  give_card(card_with_names(cards[1], {PeerId{7}, PeerId{1}}));
  TestSend message(8);
  send(0, 1, message);
  settle();
  EXPECT_EQ(outcome(message), Status::kUnreachable);
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kUnreachable}}));
}

TEST_F(EngineIntroduction, WrongNamesFailThePeerAndNothingElse) {
  make_strangers();
  give_card(card_version() + ";as=4" + cards[1].substr(card_version().size()));
  TestSend message(8);
  send(0, 1, message);
  settle();
  EXPECT_EQ(outcome(message), Status::kUnreachable);
  EXPECT_EQ(at(0).warnings.size(), 1u);
}

}  // namespace
}  // namespace ch3_offload
