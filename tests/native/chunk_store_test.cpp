#include "fs3/native/chunk/chunk_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/native/chunk_harness.h"

namespace fs3 {
namespace {

using test::kChunkSize;
using test::kGranule;
using test::Machine;
using test::RandomBytes;

const ChunkId kChunk{7, 1, 0, 0};
using Bytes = std::vector<uint8_t>;

TEST(ChunkStore, WhatIsWrittenIsReadFromAnyOffset) {
  Machine machine;
  const Bytes data = RandomBytes(kChunkSize, 1);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  for (const auto& [offset, length] : std::vector<std::pair<uint32_t, uint32_t>>{
           {0, kChunkSize}, {4096, 8192}, {1, 1}, {4095, 2}, {100, 300000}, {8192, 100001}}) {
    const auto read = machine.Read(kChunk, offset, length);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read.value(), Bytes(data.begin() + offset, data.begin() + offset + length));
  }
}

TEST(ChunkStore, ReadsEndWhereTheChunkEnds) {
  Machine machine;
  const Bytes data = RandomBytes(5000, 2);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
  EXPECT_EQ(machine.Read(kChunk, 4999, 10).value().size(), 1U);
  EXPECT_TRUE(machine.Read(kChunk, 5000, 10).value().empty());
  EXPECT_EQ(machine.ReadAll({9, 0, 0, 0}).status().code(), Code::kNotFound);
}

TEST(ChunkStore, HolesReadAsZeros) {
  Machine machine;
  const Bytes data = RandomBytes(100, 3);
  ASSERT_TRUE(machine.Write(kChunk, 500000, data).ok());
  ASSERT_TRUE(machine.Write(kChunk, 10, data).ok());
  Bytes expected(500100);
  std::copy(data.begin(), data.end(), expected.begin() + 500000);
  std::copy(data.begin(), data.end(), expected.begin() + 10);
  EXPECT_EQ(machine.ReadAll(kChunk).value(), expected);
}

TEST(ChunkStore, SequentialSmallAppendsUseBlocksWithoutTheLog) {
  Machine machine;
  const Bytes data = RandomBytes(kChunkSize, 4);
  for (uint32_t at = 0; at < kChunkSize; at += kGranule) {
    ASSERT_TRUE(machine.Write(kChunk, at, {data.data() + at, kGranule}).ok());
  }
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
  EXPECT_EQ(machine.store->counters().log_bytes, 0U);
  EXPECT_EQ(machine.store->counters().block_bytes, kChunkSize);
  ASSERT_TRUE(machine.Flush().ok());
  EXPECT_EQ(machine.store->space().used, kChunkSize);
}

TEST(ChunkStore, PendingVersionsAreReadableByVersionOnly) {
  Machine machine;
  const Bytes one = RandomBytes(8192, 5);
  const Bytes two = RandomBytes(8192, 6);
  ASSERT_TRUE(machine.Write(kChunk, 0, one).ok());
  Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  update.data = two;
  ASSERT_TRUE(machine.Prepare(update).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), one);
  EXPECT_EQ(machine.Read(kChunk, 0, 8192, update.version).value(), two);
  EXPECT_EQ(machine.Read(kChunk, 0, 8192, Version{1, 99}).status().code(), Code::kConflict);
  EXPECT_EQ(machine.store->PendingChunks(), std::vector<ChunkId>{kChunk});

  ASSERT_TRUE(machine.store->Commit(kChunk, update.version).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), two);
  EXPECT_TRUE(machine.store->PendingChunks().empty());
}

TEST(ChunkStore, CommitTakesEarlierPendingVersionsWithIt) {
  Machine machine;
  std::vector<Version> versions;
  for (uint64_t i = 0; i < 3; ++i) {
    Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
    const Bytes data(100, static_cast<uint8_t>(i + 1));
    update.offset = static_cast<uint32_t>(i * 100);
    update.data = data;
    ASSERT_TRUE(machine.Prepare(update).ok());
    versions.push_back(update.version);
  }
  ASSERT_TRUE(machine.store->Commit(kChunk, versions[1]).ok());
  const ChunkInfo info = machine.Stat(kChunk).value();
  EXPECT_EQ(info.committed->version, versions[1]);
  EXPECT_EQ(info.committed->length, 200U);
  ASSERT_EQ(info.pending.size(), 1U);
  EXPECT_EQ(info.pending[0].version, versions[2]);
  EXPECT_TRUE(machine.store->Commit(kChunk, versions[0]).ok());
  EXPECT_EQ(machine.store->Commit(kChunk, {5, 0}).code(), Code::kNotFound);
}

TEST(ChunkStore, AbandonDropsTheVersionAndThoseOnIt) {
  Machine machine;
  const Bytes data = RandomBytes(8192, 7);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  Version first{};
  for (int i = 0; i < 2; ++i) {
    Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
    const Bytes other = RandomBytes(8192, 8);
    update.data = other;
    ASSERT_TRUE(machine.Prepare(update).ok());
    if (i == 0) first = update.version;
  }
  ASSERT_TRUE(machine.store->Abandon(kChunk, first).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
  EXPECT_TRUE(machine.store->PendingChunks().empty());
  EXPECT_EQ(machine.store->Abandon(kChunk, first).code(), Code::kNotFound);
  ASSERT_TRUE(machine.Kill9().ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
}

TEST(ChunkStore, VersionsMustGrowAndBasesMatch) {
  Machine machine;
  const Bytes data(100, 1);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  update.data = data;
  update.base = Version{1, 77};
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kConflict);
  update.base = Version{1, 1};
  ASSERT_TRUE(machine.Do(update).ok());
  const auto again = machine.Prepare(update);  // sent twice
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again.value().duplicate);
  update.version = {0, 9};
  update.base.reset();
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kConflict);
}

TEST(ChunkStore, TruncateCutsForGood) {
  Machine machine;
  const Bytes data = RandomBytes(100000, 9);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  ASSERT_TRUE(machine.Truncate(kChunk, 50001, 3).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), Bytes(data.begin(), data.begin() + 50001));

  Update extend = machine.MakeUpdate(kChunk, UpdateKind::kExtend);
  extend.length = 100000;
  extend.truncate_version = 3;
  ASSERT_TRUE(machine.Do(extend).ok());
  Bytes expected(100000);
  std::copy(data.begin(), data.begin() + 50001, expected.begin());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), expected);

  Update late = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  late.data = data;
  late.truncate_version = 2;
  EXPECT_EQ(machine.Prepare(late).status().code(), Code::kStaleHandle);
}

TEST(ChunkStore, RemoveLeavesATombstoneAndReturnsSpace) {
  Machine machine;
  const Bytes data = RandomBytes(kChunkSize, 10);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  ASSERT_TRUE(machine.Flush().ok());
  EXPECT_EQ(machine.store->space().used, kChunkSize);
  ASSERT_TRUE(machine.Remove(kChunk).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).status().code(), Code::kNotFound);
  EXPECT_EQ(machine.Remove(kChunk).code(), Code::kNotFound);
  const Version removed = machine.Stat(kChunk).value().committed->version;
  EXPECT_TRUE(machine.Stat(kChunk).value().committed->tombstone);
  ASSERT_TRUE(machine.Flush().ok());
  EXPECT_EQ(machine.store->space().used, 0U);

  Status forgotten;
  machine.store->Forget(kChunk, removed, [&](Status status) { forgotten = status; });
  EXPECT_TRUE(forgotten.ok());
  EXPECT_EQ(machine.Stat(kChunk).status().code(), Code::kNotFound);
  ASSERT_TRUE(machine.Flush().ok());
  ASSERT_TRUE(machine.Flush().ok());
  EXPECT_EQ(machine.kv.size(), 1U);  // the state of the store
}

TEST(ChunkStore, ARetryHasNoSecondEffect) {
  Machine machine;
  const Bytes data = RandomBytes(100, 11);
  Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  update.data = data;
  update.once = OnceRecord{42, 1, 7, {}, 0};
  ASSERT_TRUE(machine.Do(update).ok());
  ASSERT_TRUE(machine.Remove(kChunk).ok());
  ASSERT_TRUE(machine.Kill9().ok());
  machine.CommitPending();

  Update retry = update;
  retry.version = machine.NextVersion();
  const auto result = machine.Prepare(retry);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value().duplicate);
  EXPECT_EQ(result.value().version, update.version);
  EXPECT_EQ(result.value().length, 100U);
  EXPECT_EQ(machine.ReadAll(kChunk).status().code(), Code::kNotFound);
}

TEST(ChunkStore, OnceRecordsAreBoundedAndNeverEvicted) {
  Machine machine;
  const Bytes data(10, 1);
  Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  update.data = data;
  for (uint64_t client = 1; client <= kOnceRecordsMax; ++client) {
    update.version = machine.NextVersion();
    update.once = OnceRecord{client, 0, 1, {}, 0};
    ASSERT_TRUE(machine.Do(update).ok());
  }
  update.version = machine.NextVersion();
  update.once = OnceRecord{1000, 0, 1, {}, 0};
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kBusy);
  update.once = OnceRecord{5, 0, 2, {}, 0};  // acknowledges its first
  update.acknowledged_through = 1;
  EXPECT_TRUE(machine.Do(update).ok());
  update.version = machine.NextVersion();
  update.once = OnceRecord{1000, 0, 1, {}, 0};
  update.expired_clients = {6};
  EXPECT_TRUE(machine.Do(update).ok());
  EXPECT_EQ(machine.Stat(kChunk).value().once.size(), kOnceRecordsMax);
}

TEST(ChunkStore, ReplaceSetsAnyVersionAndDropsPendingOnes) {
  Machine machine;
  machine.sequence = 10;
  const Bytes data = RandomBytes(20000, 12);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  Update pending = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  pending.data = data;
  ASSERT_TRUE(machine.Prepare(pending).ok());

  const Bytes other = RandomBytes(7000, 13);
  Update replace = machine.MakeUpdate(kChunk, UpdateKind::kReplace);
  replace.version = {1, 3};
  replace.data = other;
  replace.replace_once = {OnceRecord{1, 2, 3, {1, 3}, 7000}};
  ASSERT_TRUE(machine.Do(replace).ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), other);
  const ChunkInfo info = machine.Stat(kChunk).value();
  EXPECT_EQ(info.committed->version, (Version{1, 3}));
  EXPECT_TRUE(info.pending.empty());
  EXPECT_EQ(info.once, replace.replace_once);
  ASSERT_TRUE(machine.Flush().ok());
  ASSERT_TRUE(machine.LosePower().ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), other);
}

TEST(ChunkStore, DataIsCheckedAgainstItsSendersChecksum) {
  Machine machine;
  const Bytes data = RandomBytes(200000, 14);
  for (const uint32_t offset : {0U, 5000U}) {
    Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
    update.offset = offset;
    update.data = data;
    update.data_crc = Crc32c(data) ^ 1;
    EXPECT_EQ(machine.Prepare(update).status().code(), Code::kCorrupt);
    update.data_crc = Crc32c(data);
    EXPECT_TRUE(machine.Do(update).ok());
  }
}

TEST(ChunkStore, AFlippedBitIsNeverReturned) {
  Machine machine;
  const Bytes data = RandomBytes(kChunkSize, 15);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  const FileId file{FileId::Kind::kBlock, 20, 0};
  machine.disk.FlipBit(file, (300000ULL) * 8 + 3);
  EXPECT_EQ(machine.ReadAll(kChunk).status().code(), Code::kCorrupt);
  EXPECT_EQ(machine.Read(kChunk, 299999, 10).status().code(), Code::kCorrupt);
  EXPECT_TRUE(machine.Read(kChunk, 0, 200000).ok());
  EXPECT_EQ(machine.Write(kChunk, 299900, Bytes(50, 1)).code(), Code::kCorrupt);
  EXPECT_EQ(machine.store->counters().corrupt_granules, 3U);
  machine.disk.FlipBit(file, (300000ULL) * 8 + 3);
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
}

TEST(ChunkStore, SmallOverwritesGoToTheLogAndAreFoldedHome) {
  Machine machine;
  Bytes model = RandomBytes(kChunkSize, 16);
  ASSERT_TRUE(machine.Write(kChunk, 0, model).ok());
  ASSERT_TRUE(machine.Flush().ok());
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const uint32_t at = random() % 256 * kGranule;
    const Bytes data = RandomBytes(kGranule, 100 + i);
    ASSERT_TRUE(machine.Write(kChunk, at, data).ok());
    std::copy(data.begin(), data.end(), model.begin() + at);
    if (i % 50 == 0) {
      ASSERT_EQ(machine.ReadAll(kChunk).value(), model);
    }
  }
  ASSERT_EQ(machine.ReadAll(kChunk).value(), model);
  const StoreCounters counters = machine.store->counters();
  EXPECT_EQ(counters.log_bytes, 400ULL * kGranule);
  EXPECT_GT(counters.folded_chunks, 0U);
  EXPECT_EQ(counters.merged_chunks, 0U);
  EXPECT_LE(counters.block_bytes, kChunkSize + 400ULL * kGranule);
  ASSERT_TRUE(machine.Kill9().ok());
  machine.CommitPending();
  EXPECT_EQ(machine.ReadAll(kChunk).value(), model);
}

TEST(ChunkStore, FullTargetRefusesAndKeepsWhatItHas) {
  ChunkStoreOptions options = test::SmallOptions();
  options.capacity_bytes = 8ULL << 20;
  options.reserve_bytes = 2ULL << 20;
  Machine machine(1, options);
  std::vector<Bytes> written;
  Status status;
  for (uint32_t i = 0; status.ok(); ++i) {
    Bytes data = RandomBytes(kChunkSize, 200 + i);
    status = machine.Write({1, i, 0, 0}, 0, data);
    if (status.ok()) written.push_back(std::move(data));
  }
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_EQ(written.size(), 6U);
  Update reserve = machine.MakeUpdate({2, 0, 0, 0}, UpdateKind::kWrite);
  reserve.data = written[0];
  reserve.use_reserve = true;
  EXPECT_TRUE(machine.Do(reserve).ok());
  for (uint32_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(machine.ReadAll({1, i, 0, 0}).value(), written[i]);
  }
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(machine.Remove({1, i, 0, 0}).ok());
  // Another block size than the freed ones: their space must come back from the file system's view.
  for (uint32_t i = 0; i < 24; ++i) {
    ASSERT_TRUE(machine.Write({3, i, 0, 0}, 0, {written[0].data(), 65536}).ok()) << i;
  }
  ASSERT_TRUE(machine.LosePower().ok());
  EXPECT_EQ(machine.ReadAll({1, 5, 0, 0}).value(), written[5]);
}

TEST(ChunkStore, ListPagesInOrder) {
  Machine machine;
  const Bytes data(10, 1);
  for (uint32_t i = 0; i < 50; ++i) {
    const ChunkId chunk{1 + i % 5, i / 5, 0, 0};
    ASSERT_TRUE(machine.Write(chunk, 0, data).ok());
    ASSERT_TRUE(machine.Write(chunk, 3, data).ok());
  }
  ASSERT_TRUE(machine.Remove({2, 3, 0, 0}).ok());
  std::vector<ChunkId> seen;
  std::optional<ChunkId> next = ChunkId{};
  while (next) {
    machine.store->List(*next, 7, [&](Result<ChunkList> list) {
      ASSERT_TRUE(list.ok());
      EXPECT_LE(list.value().chunks.size(), 7U);
      for (const ChunkInfo& info : list.value().chunks) {
        EXPECT_EQ(info.committed->tombstone, (info.chunk == ChunkId{2, 3, 0, 0}));
        seen.push_back(info.chunk);
      }
      next = list.value().next;
    });
  }
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(ChunkStore, ATinyRecordCacheChangesNothing) {
  ChunkStoreOptions options = test::SmallOptions();
  options.record_cache_bytes = 0;
  Machine machine(1, options);
  const Bytes data = RandomBytes(30000, 17);
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(machine.Write({1, i, 0, 0}, 100, data).ok());
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(machine.Write({1, i, 0, 0}, 5000, data).ok());
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(machine.Read({1, i, 0, 0}, 5000, 30000).value(), data);
  }
  ASSERT_TRUE(machine.Flush().ok());
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(machine.Read({1, i, 0, 0}, 5000, 30000).value(), data);
    ASSERT_TRUE(machine.Remove({1, i, 0, 0}).ok());
  }
}

TEST(ChunkStore, AReaderKeepsItsBytesUntilItIsDone) {
  ChunkStoreOptions options = test::SmallOptions();
  options.capacity_bytes = 4ULL << 20;
  Machine machine(1, options);
  const Bytes data = RandomBytes(kChunkSize, 19);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());

  machine.disk.set_deferred(true);  // the read is at the disk and stays there
  Bytes read(kChunkSize);
  std::optional<Status> answer;
  machine.store->Read({kChunk, 0, kChunkSize, {}, read.data()},
                      [&](Result<ReadResult> result) { answer = result.status(); });
  machine.disk.set_deferred(false);
  const auto do_now = [&](const Update& update) {  // without letting the read go on
    Status status(Code::kInternal, "no answer");
    machine.store->Prepare(update, [&](Result<Prepared> result) { status = result.status(); });
    return status.ok() ? machine.store->Commit(update.chunk, update.version) : status;
  };
  ASSERT_TRUE(do_now(machine.MakeUpdate(kChunk, UpdateKind::kRemove)).ok());
  const auto flush_now = [&] {
    machine.store->Flush([](Status status) { ASSERT_TRUE(status.ok()); });
  };
  flush_now();
  EXPECT_EQ(machine.store->space().used, kChunkSize);
  const Bytes other = RandomBytes(kChunkSize, 20);
  for (uint32_t i = 0; i < 3; ++i) {
    Update update = machine.MakeUpdate({8, i, 0, 0}, UpdateKind::kWrite);
    update.data = other;
    ASSERT_TRUE(do_now(update).ok());
  }
  EXPECT_FALSE(answer);
  machine.Drain();
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ(read, data);
  ASSERT_TRUE(machine.Remove({8, 0, 0, 0}).ok());
  ASSERT_TRUE(machine.Flush().ok());
  EXPECT_EQ(machine.store->space().used, 2 * kChunkSize);
}

TEST(ChunkStore, CloseFlushes) {
  Machine machine;
  const Bytes data = RandomBytes(30000, 18);
  ASSERT_TRUE(machine.Write(kChunk, 0, data).ok());
  bool closed = false;
  machine.store->Close([&](Status status) { closed = status.ok(); });
  ASSERT_TRUE(closed);
  ASSERT_TRUE(machine.LosePower().ok());
  EXPECT_EQ(machine.ReadAll(kChunk).value(), data);
}

TEST(ChunkStore, RefusesWhatItCannotMean) {
  Machine machine;
  const Bytes data(100, 1);
  Update update = machine.MakeUpdate(kChunk, UpdateKind::kWrite);
  update.data = data;
  update.chunk_size = 100000;
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kInvalidArgument);
  update.chunk_size = kChunkSize;
  update.offset = kChunkSize - 50;
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kInvalidArgument);
  update.offset = 0;
  ASSERT_TRUE(machine.Do(update).ok());
  update.version = machine.NextVersion();
  update.chunk_size = kChunkSize * 2;
  EXPECT_EQ(machine.Prepare(update).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace fs3
