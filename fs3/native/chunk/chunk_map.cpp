#include "fs3/native/chunk/chunk_map.h"

namespace fs3 {
namespace {

// ChunkIdHash leaves structure in its low bits, which choose the table here.
uint64_t Hash(const ChunkId& chunk) {
  uint64_t h = ChunkIdHash()(chunk);
  h = (h ^ h >> 32) * 0xD6E8FEB86659FD93ULL;
  return h ^ h >> 32;
}

}  // namespace

// Slot of the chunk, or the empty one where it would go. There is always an empty one.
size_t ChunkMap::Locate(const Table& table, const ChunkId& chunk) {
  size_t slot = Home(table, Hash(chunk));
  while (table.slots[slot].present && table.slots[slot].chunk != chunk) {
    slot = slot + 1 == table.slots.size() ? 0 : slot + 1;
  }
  return slot;
}

ChunkMap::Entry* ChunkMap::Find(const ChunkId& chunk) {
  Table& table = TableOf(Hash(chunk));
  if (table.slots.empty()) return nullptr;
  Entry& entry = table.slots[Locate(table, chunk)];
  return entry.present ? &entry : nullptr;
}

ChunkMap::Entry& ChunkMap::Insert(const ChunkId& chunk) {
  Table& table = TableOf(Hash(chunk));
  if (table.count + 1 > table.slots.size() * 7 / 8) Grow(table);
  Entry& entry = table.slots[Locate(table, chunk)];
  if (!entry.present) {
    entry = {chunk, 0, true};
    ++table.count;
    ++size_;
  }
  return entry;
}

void ChunkMap::Erase(const ChunkId& chunk) {
  Table& table = TableOf(Hash(chunk));
  if (table.slots.empty()) return;
  size_t hole = Locate(table, chunk);
  if (!table.slots[hole].present) return;
  table.slots[hole].present = false;
  --table.count;
  --size_;
  // Move later entries of the cluster back, so that no search stops at the hole before them.
  const size_t size = table.slots.size();
  for (size_t next = (hole + 1) % size; table.slots[next].present; next = (next + 1) % size) {
    const size_t home = Home(table, Hash(table.slots[next].chunk));
    if ((next + size - home) % size < (next + size - hole) % size) continue;
    table.slots[hole] = table.slots[next];
    table.slots[next].present = false;
    hole = next;
  }
}

void ChunkMap::Grow(Table& table) {
  std::vector<Entry> old(table.slots.size() < 8 ? 8 : table.slots.size() * 3 / 2);
  old.swap(table.slots);
  for (const Entry& entry : old) {
    if (entry.present) table.slots[Locate(table, entry.chunk)] = entry;
  }
}

uint64_t ChunkMap::memory_bytes() const {
  uint64_t bytes = sizeof *this;
  for (const Table& table : tables_) bytes += table.slots.capacity() * sizeof(Entry);
  return bytes;
}

static_assert(sizeof(ChunkMap::Entry) == 32);

}  // namespace fs3
