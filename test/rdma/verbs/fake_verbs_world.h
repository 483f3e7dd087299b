// Two ends of a connection over the fake verbs device, and the check that a test leaves nothing behind.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/fake_verbs_endpoint.h"

namespace ch3_offload::fake_verbs {

class FakeVerbs : public testing::Test {
 protected:
  FakeVerbs() { reset(); }
  ~FakeVerbs() override {
    one_.reset();
    other_.reset();
    EXPECT_TRUE(leaks().none()) << leaks();
    EXPECT_EQ(violations(), expected_violations_);
  }

  void connect(const EndpointOptions& options = {}) {
    one_ = std::make_unique<Endpoint>(options);
    other_ = std::make_unique<Endpoint>(options);
    one_->connect(*other_);
    other_->connect(*one_);
  }

  std::unique_ptr<Endpoint> one_;
  std::unique_ptr<Endpoint> other_;
  std::vector<std::string> expected_violations_;
};

}  // namespace ch3_offload::fake_verbs
