// Power cuts and kills at every point of random workloads, and completions in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/native/chunk_harness.h"

namespace fs3 {
namespace {

using test::Machine;
using Bytes = std::vector<uint8_t>;

constexpr uint32_t kChunkSize = 128U << 10;

class SmallMachine : public Machine {
 public:
  explicit SmallMachine(uint64_t seed) : Machine(seed) { chunk_size = kChunkSize; }
};

// Contents of a chunk after each version, and how far it must have come.
struct History {
  std::map<Version, std::optional<Bytes>> states;  // nothing: absent or removed
  Version acknowledged{};                          // the last prepared and committed one
  Version flushed{};
};

class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed) {
    for (uint32_t i = 0; i < 4; ++i) histories_[{1, i, 0, 0}].states[{}] = std::nullopt;
  }

  // Runs until the end or until power fails.
  void Run(Machine& machine, int operations) {
    for (int i = 0; i < operations && machine.power.is_on(); ++i) Step(machine);
  }

  // Every chunk is at its flushed version or at a later one that was sent, and reads back whole.
  void CheckAfterPowerLoss(Machine& machine) {
    for (auto& [id, history] : histories_) Check(machine, id, history, history.flushed);
  }
  void CheckAfterKill9(Machine& machine) {
    for (auto& [id, history] : histories_) Check(machine, id, history, history.acknowledged);
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  void Step(Machine& machine) {
    const uint32_t dice = Below(20);
    if (dice == 0) {
      std::map<ChunkId, Version> before;
      for (auto& [id, history] : histories_) before[id] = history.acknowledged;
      if (!machine.Flush().ok()) return;
      for (auto& [id, history] : histories_) {
        history.flushed = before[id];
        history.states.erase(history.states.begin(), history.states.find(history.flushed));
      }
      return;
    }
    auto at = histories_.begin();
    std::advance(at, Below(static_cast<uint32_t>(histories_.size())));
    auto& [id, history] = *at;
    Update update = machine.MakeUpdate(id, UpdateKind::kWrite);
    std::optional<Bytes> next = history.states.rbegin()->second;
    Bytes data;
    if (dice == 1 && next) {
      update.kind = UpdateKind::kRemove;
      next.reset();
    } else if (dice <= 3 && next) {
      update.kind = UpdateKind::kTruncate;
      update.length = Below(static_cast<uint32_t>(next->size()) + 1);
      next->resize(update.length);
    } else {
      const bool is_large = dice == 4;
      data.resize(1 + Below(is_large ? kChunkSize : 8000));
      for (auto& byte : data) byte = static_cast<uint8_t>(random_());
      update.offset = Below(kChunkSize - static_cast<uint32_t>(data.size()) + 1);
      if (dice > 12) update.offset = update.offset / 4096 * 4096;
      update.data = data;
      if (!next) next.emplace();
      next->resize(std::max(next->size(), update.offset + data.size()));
      std::copy(data.begin(), data.end(), next->begin() + update.offset);
    }
    history.states[update.version] = next;
    const auto prepared = machine.Prepare(update);
    if (!prepared.ok()) {
      // Not acknowledged, yet it may be found later; nothing else may be built on it here.
      if (machine.power.is_on()) ADD_FAILURE() << prepared.status().message();
      return;
    }
    if (dice == 19) {
      EXPECT_TRUE(machine.store->Abandon(id, update.version).ok());
      history.states.erase(update.version);
      return;
    }
    EXPECT_TRUE(machine.store->Commit(id, update.version).ok());
    history.acknowledged = update.version;
  }

  static void Check(Machine& machine, const ChunkId& id, History& history, Version at_least) {
    const auto info = machine.Stat(id);
    if (!info.ok()) {
      ASSERT_EQ(info.status().code(), Code::kNotFound) << info.status().message();
      ASSERT_EQ(at_least, Version());
      history = {};
      history.states[{}] = std::nullopt;
      return;
    }
    std::vector<VersionInfo> found = info.value().pending;
    if (info.value().committed) found.insert(found.begin(), *info.value().committed);
    ASSERT_GE(found.back().version, at_least);
    for (const VersionInfo& version : found) {
      // An abandoned version may come back as a pending one; it was forgotten by the model.
      if (!history.states.contains(version.version)) continue;
      CheckContent(machine, id, version, history.states.at(version.version));
    }
    // Go on from the newest, as the replica protocol would.
    const VersionInfo last = found.back();
    ASSERT_TRUE(machine.store->Commit(id, last.version).ok());
    std::optional<Bytes> state;
    if (!last.tombstone) state = machine.ReadAll(id).value();
    history = {};
    history.states[last.version] = state;
    history.acknowledged = last.version;
  }

  static void CheckContent(Machine& machine, const ChunkId& id, const VersionInfo& version,
                           const std::optional<Bytes>& expected) {
    ASSERT_EQ(version.tombstone, !expected.has_value());
    if (!expected) return;
    const auto read = machine.Read(id, 0, kChunkSize, version.version);
    ASSERT_TRUE(read.ok()) << read.status().message();
    ASSERT_EQ(read.value(), *expected);
  }

  std::mt19937_64 random_;
  std::map<ChunkId, History> histories_;
};

uint64_t CountOperations(uint64_t seed, int steps) {
  SmallMachine machine(seed);
  const uint64_t before = machine.power.operations();
  Workload(seed).Run(machine, steps);
  return machine.power.operations() - before;
}

TEST(ChunkCrash, PowerCutAtEveryPointLosesNothingFlushed) {
  constexpr uint64_t kSeed = 1;
  constexpr int kSteps = 200;
  const uint64_t operations = CountOperations(kSeed, kSteps);
  for (uint64_t cut = 0; cut < operations; ++cut) {
    SCOPED_TRACE(cut);
    SmallMachine machine(kSeed);
    Workload workload(kSeed);
    machine.power.CutAfter(cut);
    workload.Run(machine, kSteps);
    ASSERT_TRUE(machine.LosePower().ok());
    workload.CheckAfterPowerLoss(machine);
    if (testing::Test::HasFatalFailure()) return;
    workload.Run(machine, 10);
  }
}

TEST(ChunkCrash, PowerCutAgainWhileRecovering) {
  for (uint64_t seed = 100; seed < 130; ++seed) {
    SCOPED_TRACE(seed);
    SmallMachine machine(seed);
    Workload workload(seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 5; ++round) {
      machine.power.CutAfter(random() % 300);
      workload.Run(machine, 100);
      machine.Stop();
      machine.power.CutAfter(random() % 20);  // often within the next open
      (void)machine.Start();
      ASSERT_TRUE(machine.LosePower().ok());
      workload.CheckAfterPowerLoss(machine);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(ChunkCrash, Kill9KeepsEverythingAcknowledged) {
  for (uint64_t seed = 200; seed < 230; ++seed) {
    SCOPED_TRACE(seed);
    SmallMachine machine(seed);
    Workload workload(seed);
    for (int round = 0; round < 5; ++round) {
      workload.Run(machine, 60);
      ASSERT_TRUE(machine.Kill9().ok());
      workload.CheckAfterKill9(machine);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(ChunkCrash, KillsAndPowerCutsInTurn) {
  for (uint64_t seed = 400; seed < 430; ++seed) {
    SCOPED_TRACE(seed);
    SmallMachine machine(seed);
    Workload workload(seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 8; ++round) {
      machine.power.CutAfter(random() % 150);
      workload.Run(machine, 40);
      if (machine.power.is_on() && random() % 2 == 0) {
        machine.power.Restore();
        ASSERT_TRUE(machine.Kill9().ok());
        workload.CheckAfterKill9(machine);
      } else {
        ASSERT_TRUE(machine.LosePower().ok());
        workload.CheckAfterPowerLoss(machine);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Many operations in flight at once, whose disk operations complete in random order.
class Overlap {
 public:
  Overlap(Machine& machine, uint64_t seed) : machine_(machine), random_(seed) {
    machine.disk.set_deferred(true);
    machine.kv.set_deferred(true);
  }
  ~Overlap() {
    machine_.disk.set_deferred(false);
    machine_.kv.set_deferred(false);
  }

  void Run(int operations) {
    for (int i = 0; i < operations && machine_.power.is_on(); ++i) {
      Start();
      for (uint64_t steps = random_() % 6; steps > 0; --steps) {
        random_() % 2 == 0 ? machine_.disk.RunOne() : machine_.kv.RunOne();
      }
    }
    machine_.Drain();
    EXPECT_EQ(in_flight_, 0);
  }

  void CheckAll() {
    for (auto& [id, chunk] : chunks_) {
      EXPECT_EQ(machine_.ReadAll(id).value(), chunk.states.rbegin()->second);
    }
  }

  void CheckAfterPowerLoss() {
    for (auto& [id, chunk] : chunks_) {
      const auto info = machine_.Stat(id);
      if (!info.ok()) {
        ASSERT_EQ(chunk.flushed, Version());
        continue;
      }
      std::vector<VersionInfo> found = info.value().pending;
      if (info.value().committed) found.insert(found.begin(), *info.value().committed);
      ASSERT_GE(found.back().version, chunk.flushed);
      for (const VersionInfo& version : found) {
        const auto read = machine_.Read(id, 0, kChunkSize, version.version);
        ASSERT_TRUE(read.ok()) << read.status().message();
        ASSERT_EQ(read.value(), chunk.states.at(version.version));
      }
    }
  }

 private:
  struct Chunk {
    std::map<Version, Bytes> states;  // by version, in the order sent
    Version committed{};
    Version flushed{};
  };

  void Start() {
    const ChunkId id{1, static_cast<uint32_t>(random_() % 3), 0, 0};
    const uint64_t dice = random_() % 10;
    if (dice == 0) return StartFlush();
    if (dice <= 4 && chunks_[id].committed != Version()) return StartRead(id);
    StartWrite(id);
  }

  void StartFlush() {
    std::map<ChunkId, Version> acknowledged;
    for (auto& [id, chunk] : chunks_) acknowledged[id] = chunk.committed;
    machine_.store->Flush([this, acknowledged](Status status) {
      if (!status.ok()) return ExpectPowerIsOff();
      for (const auto& [id, version] : acknowledged) {
        chunks_[id].flushed = std::max(chunks_[id].flushed, version);
      }
    });
  }

  void StartWrite(const ChunkId& id) {
    auto data = std::make_shared<Bytes>(1 + random_() % 20000);
    for (auto& byte : *data) byte = static_cast<uint8_t>(random_());
    Update update = machine_.MakeUpdate(id, UpdateKind::kWrite);
    update.offset = static_cast<uint32_t>(random_() % (kChunkSize - data->size()));
    update.data = *data;
    Chunk& chunk = chunks_[id];
    Bytes state = chunk.states.empty() ? Bytes() : chunk.states.rbegin()->second;
    state.resize(std::max(state.size(), update.offset + data->size()));
    std::copy(data->begin(), data->end(), state.begin() + update.offset);
    chunk.states[update.version] = std::move(state);
    ++in_flight_;
    machine_.store->Prepare(update,
                            [this, id, data, version = update.version](Result<Prepared> result) {
                              --in_flight_;
                              if (!result.ok()) return ExpectPowerIsOff();
                              EXPECT_TRUE(machine_.store->Commit(id, version).ok());
                              chunks_[id].committed = version;
                            });
  }

  // A reader sees the version committed when it began, whatever happens meanwhile.
  void StartRead(const ChunkId& id) {
    auto buffer = std::make_shared<Bytes>(kChunkSize);
    const Version version = chunks_[id].committed;
    ++in_flight_;
    machine_.store->Read({id, 0, kChunkSize, {}, buffer->data()},
                         [this, buffer, id, version](Result<ReadResult> result) {
                           --in_flight_;
                           if (!result.ok()) return ExpectPowerIsOff();
                           EXPECT_EQ(result.value().version, version);
                           buffer->resize(result.value().size);
                           EXPECT_EQ(*buffer, chunks_[id].states.at(version));
                         });
  }

  void ExpectPowerIsOff() { EXPECT_FALSE(machine_.power.is_on()); }

  Machine& machine_;
  std::mt19937_64 random_;
  int in_flight_ = 0;
  std::map<ChunkId, Chunk> chunks_;
};

// Little space, so that what is given back too early is soon written to by others.
ChunkStoreOptions TightOptions() {
  ChunkStoreOptions options;
  options.capacity_bytes = 6ULL << 20;
  options.log_segment_bytes = 1ULL << 20;
  options.log_segments_max = 3;
  return options;
}

TEST(ChunkCrash, OverlappingOperationsInAnyOrder) {
  for (uint64_t seed = 300; seed < 340; ++seed) {
    SCOPED_TRACE(seed);
    Machine machine(seed, TightOptions());
    machine.chunk_size = kChunkSize;
    Overlap overlap(machine, seed);
    overlap.Run(300);
    overlap.CheckAll();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ChunkCrash, PowerCutsAmongOverlappingOperations) {
  for (uint64_t seed = 500; seed < 700; ++seed) {
    SCOPED_TRACE(seed);
    Machine machine(seed, TightOptions());
    machine.chunk_size = kChunkSize;
    Overlap overlap(machine, seed);
    machine.power.CutAfter(seed * 7919 % 400);
    overlap.Run(150);
    ASSERT_TRUE(machine.LosePower().ok());
    overlap.CheckAfterPowerLoss();
    if (testing::Test::HasFailure()) return;
  }
}

// One chunk overwritten by granules, so that it is folded by its own updates.
TEST(ChunkCrash, PowerCutsWhileAHotChunkIsFolded) {
  constexpr uint32_t kGranules = 64;
  uint64_t folded = 0;
  for (uint64_t seed = 700; seed < 760; ++seed) {
    SCOPED_TRACE(seed);
    Machine machine(seed);
    machine.chunk_size = kGranules * 4096;
    std::mt19937_64 random(seed);
    const ChunkId id{1, 0, 0, 0};
    Bytes state = test::RandomBytes(machine.chunk_size, seed);
    ASSERT_TRUE(machine.Write(id, 0, state).ok());
    ASSERT_TRUE(machine.Flush().ok());
    std::map<Version, Bytes> states{{{1, machine.sequence}, state}};
    machine.power.CutAfter(random() % 500);
    for (int i = 0; i < 150 && machine.power.is_on(); ++i) {
      const uint32_t offset = static_cast<uint32_t>(random() % kGranules) * 4096;
      const Bytes data = test::RandomBytes(4096, random());
      std::copy(data.begin(), data.end(), state.begin() + offset);
      states[{1, machine.sequence + 1}] = state;
      (void)machine.Write(id, offset, data);
      if (random() % 40 == 0) (void)machine.Flush();
    }
    folded += machine.store->counters().folded_chunks;
    ASSERT_TRUE(machine.LosePower().ok());
    const ChunkInfo info = machine.Stat(id).value();
    ASSERT_EQ(machine.ReadAll(id).value(), states.at(info.committed->version));
    for (const VersionInfo& version : info.pending) {
      ASSERT_EQ(machine.Read(id, 0, machine.chunk_size, version.version).value(),
                states.at(version.version));
    }
  }
  EXPECT_GT(folded, 100U);
}

}  // namespace
}  // namespace fs3
