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
      machine.store.reset();
      machine.disk.LosePower();
      machine.kv.LosePower();
      machine.power.Restore();
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

// Many operations in flight at once, whose disk operations complete in random order.
class Overlap {
 public:
  Overlap(Machine& machine, uint64_t seed) : machine_(machine), random_(seed) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      Start();
      for (uint64_t steps = random_() % 6; steps > 0; --steps) {
        random_() % 2 == 0 ? machine_.disk.RunOne() : machine_.kv.RunOne();
      }
    }
    machine_.Drain();
    EXPECT_EQ(in_flight_, 0);
    for (auto& [id, state] : states_) EXPECT_EQ(machine_.ReadAll(id).value(), state);
  }

 private:
  void Start() {
    const ChunkId id{1, static_cast<uint32_t>(random_() % 3), 0, 0};
    const uint64_t dice = random_() % 10;
    if (dice == 0) return machine_.store->Flush([](Status status) { EXPECT_TRUE(status.ok()); });
    if (dice <= 4 && committed_.contains(id)) return StartRead(id);
    StartWrite(id);
  }

  void StartWrite(const ChunkId& id) {
    auto data = std::make_shared<Bytes>(1 + random_() % 20000);
    for (auto& byte : *data) byte = static_cast<uint8_t>(random_());
    Update update = machine_.MakeUpdate(id, UpdateKind::kWrite);
    update.offset = static_cast<uint32_t>(random_() % (kChunkSize - data->size()));
    update.data = *data;
    Bytes& state = states_[id];
    state.resize(std::max(state.size(), update.offset + data->size()));
    std::copy(data->begin(), data->end(), state.begin() + update.offset);
    ++in_flight_;
    machine_.store->Prepare(
        update, [this, id, data, version = update.version, after = state](Result<Prepared> result) {
          --in_flight_;
          ASSERT_TRUE(result.ok()) << result.status().message();
          ASSERT_TRUE(machine_.store->Commit(id, version).ok());
          committed_[id] = {version, after};
        });
  }

  // A reader sees the version committed when it began, whatever happens meanwhile.
  void StartRead(const ChunkId& id) {
    auto buffer = std::make_shared<Bytes>(kChunkSize);
    const auto [version, expected] = committed_.at(id);
    ++in_flight_;
    machine_.store->Read(
        {id, 0, kChunkSize, {}, buffer->data()},
        [this, buffer, version = version, expected = expected](Result<ReadResult> result) {
          --in_flight_;
          ASSERT_TRUE(result.ok()) << result.status().message();
          ASSERT_EQ(result.value().version, version);
          buffer->resize(result.value().size);
          ASSERT_EQ(*buffer, expected);
        });
  }

  Machine& machine_;
  std::mt19937_64 random_;
  int in_flight_ = 0;
  std::map<ChunkId, Bytes> states_;
  std::map<ChunkId, std::pair<Version, Bytes>> committed_;
};

TEST(ChunkCrash, OverlappingOperationsInAnyOrder) {
  for (uint64_t seed = 300; seed < 320; ++seed) {
    SCOPED_TRACE(seed);
    SmallMachine machine(seed);
    machine.disk.set_deferred(true);
    machine.kv.set_deferred(true);
    Overlap(machine, seed).Run(300);
    if (testing::Test::HasFailure()) return;
    machine.disk.set_deferred(false);
    machine.kv.set_deferred(false);
  }
}

}  // namespace
}  // namespace fs3
