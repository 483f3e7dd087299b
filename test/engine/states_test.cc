// The tables of states: what they allow, and that docs/state-machines.md shows them.

#include "engine/states.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace ch3_offload {
namespace {

/// As it stands in docs/state-machines.md.
template <class Machine>
std::string diagram(const Machine& machine) {
  std::string text = "```mermaid\nstateDiagram-v2\n";
  for (const auto& each : machine.transitions()) {
    text += std::string("  ") + machine.name_of(each.from) + " --> " + machine.name_of(each.to) + ": " +
            machine.name_of(each.event) + "\n";
  }
  return text + "```\n";
}

std::string read_page() {
  const char* const top = std::getenv("top_srcdir");
  std::ifstream file(std::string(top == nullptr ? "." : top) + "/docs/state-machines.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class Machine>
void expect_shown(const Machine& machine) {
  EXPECT_NE(read_page().find(diagram(machine)), std::string::npos)
      << "docs/state-machines.md lacks this, or top_srcdir is not the source tree:\n"
      << diagram(machine);
}

TEST(States, ThePageShowsEveryTable) {
  expect_shown(kSendMachine);
  expect_shown(kPacketMachine);
  expect_shown(kOutboundMachine);
  expect_shown(kTargetRequestMachine);
  expect_shown(kReceiveMachine);
  expect_shown(kLandingMachine);
  expect_shown(kMessageMachine);
}

/// Every state can be left or is where something begins or ends, and no name serves two.
template <class Machine>
void expect_sound(const Machine& machine) {
  std::set<std::string> used;
  for (const auto& each : machine.transitions()) {
    used.insert(machine.name_of(each.from));
    used.insert(machine.name_of(each.to));
  }
  std::set<std::string> names(machine.state_names().begin(), machine.state_names().end());
  EXPECT_EQ(names.size(), machine.state_names().size()) << machine.name();
  for (const std::string& name : used) EXPECT_EQ(names.count(name), 1u) << machine.name() << " " << name;
}

TEST(States, TheTablesAreSound) {
  expect_sound(kSendMachine);
  expect_sound(kPacketMachine);
  expect_sound(kOutboundMachine);
  expect_sound(kTargetRequestMachine);
  expect_sound(kReceiveMachine);
  expect_sound(kLandingMachine);
  expect_sound(kMessageMachine);
}

TEST(States, AnEventThatIsNotListedChangesNothing) {
  SendState state = SendState::kAwaitingCts;
  EXPECT_FALSE(kSendMachine.step(state, SendEvent::kAck));
  EXPECT_EQ(state, SendState::kAwaitingCts);
  EXPECT_TRUE(kSendMachine.step(state, SendEvent::kCts));
  EXPECT_EQ(state, SendState::kMoving);
  EXPECT_STREQ(kSendMachine.name_of(state), "Moving");
}

TEST(States, WhatIsWrittenIsNotBounced) {
  LandingState state = LandingState::kGranted;
  ASSERT_TRUE(kLandingMachine.step(state, LandingEvent::kPartWritten));
  EXPECT_FALSE(kLandingMachine.step(state, LandingEvent::kPartBounced));
}

TEST(States, AFinishedSendStaysFinished) {
  for (int event = 0; event <= static_cast<int>(SendEvent::kFailed); ++event) {
    SendState state = SendState::kFinished;
    EXPECT_FALSE(kSendMachine.step(state, static_cast<SendEvent>(event))) << event;
  }
}

}  // namespace
}  // namespace ch3_offload
