// BlockAllocator: which blocks of which size class are used, and which are backed by disk space.
// Pure bookkeeping: the caller backs blocks (fallocate) and gives space back (punch).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "fs3/native/chunk/record.h"

namespace fs3 {

// Blocks first .. first + count of one class; never across a file.
struct BlockRun {
  uint8_t class_log2 = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t bytes() const { return uint64_t{count} << class_log2; }
  FileId file() const;
  uint64_t position() const;
};

class BlockAllocator {
 public:
  // A backed free block becomes used: the one that has been free for longest, so that rewrites
  // wander over the device instead of wearing one region.
  std::optional<uint32_t> Take(uint8_t class_log2);
  void Free(uint8_t class_log2, uint32_t number);
  bool HasFree(uint8_t class_log2) const { return !At(class_log2).free.empty(); }

  // While opening: a block that a record refers to is used and backed.
  void MarkUsed(uint8_t class_log2, uint32_t number);
  // While opening: blocks up to this count lie within existing files.
  void Reach(uint8_t class_log2, uint32_t count) { Grow(At(class_log2), count); }

  // A run of blocks that are not backed, of bytes_max at most (at least one block).
  BlockRun NextUnbacked(uint8_t class_log2, uint64_t bytes_max);
  void AddBacked(const BlockRun& run);

  // Free runs: those within files at open, or those backed, which are no longer so on return.
  std::vector<BlockRun> FreeRuns() const;
  std::vector<BlockRun> GiveUpBacked(uint64_t bytes_min);

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t backed_bytes() const { return backed_bytes_; }

 private:
  struct Class {
    std::vector<bool> used;
    std::vector<bool> backed;
    std::deque<uint32_t> free;   // backed and not used, longest free first
    uint32_t unbacked_from = 0;  // all blocks before are backed
  };
  Class& At(uint8_t class_log2) { return classes_[class_log2 - kBlockClassMin]; }
  const Class& At(uint8_t class_log2) const { return classes_[class_log2 - kBlockClassMin]; }
  static void Grow(Class& blocks, uint32_t count);

  std::array<Class, kBlockClassMax - kBlockClassMin + 1> classes_;
  uint64_t used_bytes_ = 0;
  uint64_t backed_bytes_ = 0;
};

}  // namespace fs3
