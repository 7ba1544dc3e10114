// A chunk store on fakes, driven synchronously.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/chunk/chunk_store.h"
#include "fs3/native/chunk/fake_disk.h"

namespace fs3::test {

constexpr uint32_t kChunkSize = 1U << 20;
constexpr uint32_t kGranule = 4096;

inline std::vector<uint8_t> RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> out(size);
  for (auto& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

inline ChunkStoreOptions SmallOptions() {
  ChunkStoreOptions options;
  options.capacity_bytes = 64ULL << 20;
  options.log_segment_bytes = 1ULL << 20;
  options.log_segments_max = 8;
  return options;
}

class Machine {
 public:
  explicit Machine(uint64_t seed = 1, ChunkStoreOptions options = SmallOptions())
      : power(seed), disk(power), kv(power), options_(options) {
    options_.boot_id = "boot";
    EXPECT_TRUE(Start().ok());
  }

  Status Start() {
    Status status(Code::kInternal, "open did not end");
    ChunkStore::Open(disk, kv, options_, [&](Result<std::unique_ptr<ChunkStore>> result) {
      status = result.status();
      if (result.ok()) store = std::move(result.value());
    });
    Drain();
    return status;
  }

  void Drain() {
    while (disk.RunOne() || kv.RunOne()) {
    }
  }

  // The process ends; what it had not flushed is still in the page cache.
  Status Kill9() {
    store.reset();
    return Start();
  }

  // What the replica protocol decides when nothing was lost.
  void CommitPending() {
    for (const ChunkId& chunk : store->PendingChunks()) {
      const ChunkInfo info = Stat(chunk).value();
      EXPECT_TRUE(store->Commit(chunk, info.pending.back().version).ok());
    }
  }

  // The machine stops and starts again.
  Status LosePower() {
    Stop();
    return Start();
  }
  void Stop() {
    Drain();
    store.reset();
    disk.LosePower();
    kv.LosePower();
    power.Restore();
    options_.boot_id += '+';
  }

  Result<Prepared> Prepare(const Update& update) {
    std::optional<Result<Prepared>> out;
    store->Prepare(update, [&](Result<Prepared> result) { out = std::move(result); });
    Drain();
    return out ? *out : Status(Code::kInternal, "no answer");
  }

  Version NextVersion() { return {1, ++sequence}; }

  Update MakeUpdate(const ChunkId& chunk, UpdateKind kind) {
    Update update;
    update.chunk = chunk;
    update.kind = kind;
    update.version = NextVersion();
    update.chunk_size = chunk_size;
    return update;
  }

  // Prepares and commits.
  Status Do(const Update& update) {
    const auto prepared = Prepare(update);
    if (!prepared.ok()) return prepared.status();
    return store->Commit(update.chunk, prepared.value().version);
  }

  Status Write(const ChunkId& chunk, uint32_t offset, std::span<const uint8_t> data) {
    Update update = MakeUpdate(chunk, UpdateKind::kWrite);
    update.offset = offset;
    update.data = data;
    return Do(update);
  }

  Status Truncate(const ChunkId& chunk, uint32_t length, uint64_t truncate_version) {
    Update update = MakeUpdate(chunk, UpdateKind::kTruncate);
    update.length = length;
    update.truncate_version = truncate_version;
    return Do(update);
  }

  Status Remove(const ChunkId& chunk) { return Do(MakeUpdate(chunk, UpdateKind::kRemove)); }

  Result<std::vector<uint8_t>> Read(const ChunkId& chunk, uint32_t offset, uint32_t length,
                                    std::optional<Version> version = {}) {
    std::vector<uint8_t> bytes(length);
    Status status(Code::kInternal, "no answer");
    store->Read({chunk, offset, length, version, bytes.data()}, [&](Result<ReadResult> result) {
      status = result.status();
      if (!result.ok()) return;
      bytes.resize(result.value().size);
      EXPECT_EQ(result.value().crc, Crc32c(bytes));
    });
    Drain();
    if (!status.ok()) return status;
    return bytes;
  }

  Result<std::vector<uint8_t>> ReadAll(const ChunkId& chunk) { return Read(chunk, 0, kChunkSize); }

  Result<ChunkInfo> Stat(const ChunkId& chunk) {
    std::optional<Result<ChunkInfo>> out;
    store->Stat(chunk, [&](Result<ChunkInfo> result) { out = std::move(result); });
    Drain();
    return out ? *out : Status(Code::kInternal, "no answer");
  }

  Status Flush() {
    Status status(Code::kInternal, "no answer");
    store->Flush([&](Status result) { status = std::move(result); });
    Drain();
    return status;
  }

  FakePower power;
  FakeDisk disk;
  MemoryMetaKv kv;
  std::unique_ptr<ChunkStore> store;
  uint64_t sequence = 0;
  uint32_t chunk_size = kChunkSize;

 private:
  ChunkStoreOptions options_;
};

}  // namespace fs3::test
