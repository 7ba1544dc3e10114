// ChunkMap: every chunk of a target, 32 bytes each in open-addressing tables, so that memory stays
// below 64 bytes per chunk. A thousand small tables instead of one: growing one of them is short.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fs3/native/base/ids.h"

namespace fs3 {

class ChunkMap {
 public:
  struct Entry {
    ChunkId chunk;
    uint64_t ordinal = 0;  // of the committed record; 0: only pending versions
    bool present = false;
  };

  // Valid until the next Insert or Erase.
  Entry* Find(const ChunkId& chunk);
  Entry& Insert(const ChunkId& chunk);  // or the one that is there
  void Erase(const ChunkId& chunk);
  uint64_t size() const { return size_; }
  uint64_t memory_bytes() const;

 private:
  struct Table {
    std::vector<Entry> slots;
    size_t count = 0;
  };
  static constexpr size_t kTables = 1024;

  Table& TableOf(uint64_t hash) { return tables_[hash % kTables]; }
  static size_t Home(const Table& table, uint64_t hash) {
    return hash / kTables % table.slots.size();
  }
  static size_t Locate(const Table& table, const ChunkId& chunk);
  static void Grow(Table& table);

  std::array<Table, kTables> tables_;
  uint64_t size_ = 0;
};

}  // namespace fs3
