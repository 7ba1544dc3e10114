// An open file as the IO client knows it. Callers and the loop's thread share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/frame/chunk_ops.h"

namespace fs3 {

class File {
 public:
  // The length and cuts of a file at one moment.
  struct Extent {
    uint64_t length = 0;
    uint64_t truncate_version = 0;
    uint64_t cut = 0;  // chunks that have not heard of truncate_version end here
  };

  File(InodeId inode, uint32_t chunk_size, std::vector<ChainId> chains, uint64_t length,
       uint64_t truncate_version)
      : inode_(inode),
        chunk_size_(chunk_size),
        chains_(std::move(chains)),
        length_(length),
        cut_(length),
        truncate_version_(truncate_version) {}

  InodeId inode() const { return inode_; }
  uint32_t chunk_size() const { return chunk_size_; }
  const std::vector<ChainId>& chains() const { return chains_; }
  ChainId ChainOf(uint32_t index) const { return chains_[index % chains_.size()]; }

  // Each chain once.
  std::vector<ChainId> DistinctChains() const {
    auto chains = chains_;
    std::sort(chains.begin(), chains.end());
    chains.erase(std::unique(chains.begin(), chains.end()), chains.end());
    return chains;
  }

  void SetLength(uint64_t length, uint64_t truncate_version) {
    const std::lock_guard lock(mutex_);
    length_ = cut_ = length;
    acknowledged_ = 0;
    truncate_version_ = truncate_version;
  }

  void OnWritten(uint64_t end) {
    const std::lock_guard lock(mutex_);
    acknowledged_ = std::max(acknowledged_, end);
  }

  Extent extent() const {
    const std::lock_guard lock(mutex_);
    return {std::max(length_, acknowledged_), truncate_version_, cut_};
  }
  uint64_t acknowledged() const {
    const std::lock_guard lock(mutex_);
    return acknowledged_;
  }

  // Where the chunk ends if it has not heard of the truncate version; kWireNoCut: as it is.
  uint32_t CutOf(uint32_t index, const Extent& extent) const {
    const uint64_t begin = uint64_t{index} * chunk_size_;
    if (extent.cut >= begin + chunk_size_) return kWireNoCut;
    return extent.cut <= begin ? 0 : static_cast<uint32_t>(extent.cut - begin);
  }

 private:
  const InodeId inode_;
  const uint32_t chunk_size_;
  const std::vector<ChainId> chains_;
  mutable std::mutex mutex_;
  uint64_t length_;
  uint64_t acknowledged_ = 0;
  uint64_t cut_;
  uint64_t truncate_version_;
};

}  // namespace fs3
