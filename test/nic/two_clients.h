// Two clients in other processes of one node, whose processor has a turn when the test says so.

#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

#include "nic/exchange.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {

class TwoClients : public testing::Test {
 protected:
  static constexpr std::size_t kLength = 200'000;

  TwoClients() : exchange_(PeerId{0}, 2, nullptr) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      ports_[i] = exchange_.attach(PeerId{i});
      others_[i] = std::make_unique<OtherProcess>(2, *ports_[i]);
      Provider* const providers[] = {ports_[i].get()};
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = 2;
      clients_[i] = std::make_unique<SteppedRings>(config, providers, i + 1, others_[i].get());
    }
  }
  ~TwoClients() override {
    for (auto& client : clients_) client.reset();
    for (auto& port : ports_) port.reset();
  }
  /// Until one of the kind comes to that client. Answers who asks for a card.
  bool await(std::uint32_t i, Event::Kind kind) {
    for (int turns = 0; turns < 2000; ++turns) {
      exchange_.poll();
      for (std::uint32_t each = 0; each < 2; ++each)
        if (clients_[each] != nullptr && has_turn(each, kind) && each == i) return true;
    }
    return false;
  }
  /// A turn of that client, and of its processor or not. Whether an event of the kind came.
  bool has_turn(std::uint32_t each, Event::Kind kind) {
    clients_[each]->progress();
    for (Event event; clients_[each]->next_event(event);) {
      if (event.kind == Event::Kind::kCardWanted)
        clients_[each]->introduce(event.peer, clients_[index_of(event.peer)]->card());
      if (event.kind == kind) return true;
    }
    return false;
  }

  Exchange exchange_;
  std::array<std::unique_ptr<ExchangePort>, 2> ports_;
  std::array<std::unique_ptr<OtherProcess>, 2> others_;
  std::array<std::unique_ptr<SteppedRings>, 2> clients_;
};

}  // namespace ch3_offload
