#include "engine/targets/unexpected_headers.h"

#include <new>

namespace ch3_offload {

void UnexpectedHeaders::append(UnexpectedHeader& header) noexcept {
  if (has_walked_ && arrivals_.empty()) {
    for (MaskIndex& given_up : indices_) given_up.index.reset();
    has_walked_ = false;
  }
  arrivals_.push_back(header);
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    header.nodes[i].header = &header;
    if (indices_[i].index != nullptr) indices_[i].index->append(header.nodes[i]);
  }
}

void UnexpectedHeaders::remove(UnexpectedHeader& header) noexcept {
  arrivals_.remove(header);
  for (std::size_t i = 0; i < indices_.size(); ++i)
    if (indices_[i].index != nullptr) indices_[i].index->remove(header.nodes[i]);
}

/// The index of that mask; made, if there may be another one. Null: walk.
const UnexpectedHeaders::Index* UnexpectedHeaders::index_for(const TargetKey& ignore) noexcept {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    MaskIndex& one = indices_[i];
    if (one.index == nullptr) {
      one = {ignore, std::unique_ptr<Index>(new (std::nothrow) Index(~ignore))};
      if (one.index == nullptr) break;
      for (UnexpectedHeader* header = arrivals_.front(); header != nullptr; header = Arrivals::next(*header))
        one.index->append(header->nodes[i]);
    }
    if (one.ignore == ignore) return one.index.get();
  }
  has_walked_ = true;
  return nullptr;
}

}  // namespace ch3_offload
