// A registrar over UCX, whose second worker writes with the keys that it packs. Where UCX goes by an RDMA device (UCX_TLS=rc),
// what is written arrives in the pages that were registered, whatever the process has by then.

#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dme/pages_under_test.h"
#include "rdma/ucx/ucx_pair.h"
#include "rdma/ucx/ucx_registrar.h"

namespace ch3_offload {

class UcxPages final : public PagesUnderTest {
 public:
  static Result<std::unique_ptr<UcxPages>> open() {
    std::unique_ptr<UcxPages> pages(new UcxPages);
    auto registrar = UcxRegistrar::open(0);
    if (!registrar.ok()) return registrar.error();
    pages->registrar_ = std::move(registrar.value());
    auto pair = UcxPair::open(pages->registrar_->context());
    if (!pair.ok()) return pair.error();
    pages->pair_ = std::move(pair.value());
    return pages;
  }

  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    return registrar_->register_memory(address, length_bytes, access, region);
  }
  void deregister_memory(MemoryRegion& region) noexcept override { registrar_->deregister_memory(region); }

  bool meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) override {
    const std::lock_guard guard(lock_);
    words_.resize(length_bytes / sizeof(std::uint64_t) + 1);
    for (std::uint64_t& word : words_) word = ++last_;
    const auto news = std::as_bytes(std::span(words_)).first(length_bytes);
    if (!pair_->write(news, address, UcxRegistrar::packed_key(region))) nothing_was_written();
    return std::memcmp(news.data(), address, length_bytes) == 0;
  }

 private:
  UcxPages() = default;

  std::mutex lock_;
  std::unique_ptr<UcxRegistrar> registrar_;
  std::unique_ptr<UcxPair> pair_;
  std::vector<std::uint64_t> words_;  ///< What is written.
  std::uint64_t last_ = 0;            ///< No word was written before.
};

}  // namespace ch3_offload
