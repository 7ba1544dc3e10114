// One contract for every Disk and for every MetaKv, the fakes included.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>

#include "fs3/native/chunk/fake_disk.h"
#include "fs3/native/chunk/loop_disk.h"
#include "fs3/native/chunk/rocks_meta_kv.h"
#include "fs3/native/chunk/sync_disk.h"

namespace fs3 {
namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/fs3-chunk-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A disk, and how to run a piece of code on the thread it belongs to.
class DiskOwner {
 public:
  virtual ~DiskOwner() = default;
  virtual Disk& disk() = 0;
  virtual void Run(Function<void()> task) { task(); }
};

class FakeOwner : public DiskOwner {
 public:
  Disk& disk() override { return disk_; }

 private:
  FakePower power_;
  FakeDisk disk_{power_};
};

class SyncOwner : public DiskOwner {
 public:
  Disk& disk() override { return disk_; }

 private:
  Folder folder_;
  SyncDisk disk_{std::move(TargetFiles::Open(folder_.path()).value())};
};

class LoopOwner : public DiskOwner {
 public:
  LoopOwner() : loop_(std::move(LoopThread::Start({}).value())) {
    disk_ = std::make_unique<LoopDisk>(loop_->loop(),
                                       std::move(TargetFiles::Open(folder_.path()).value()));
  }
  Disk& disk() override { return *disk_; }
  void Run(Function<void()> task) override { ASSERT_TRUE(loop_->loop().Post(std::move(task))); }

 private:
  Folder folder_;
  std::unique_ptr<LoopThread> loop_;
  std::unique_ptr<LoopDisk> disk_;
};

class ChunkDiskContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "fake") owner_ = std::make_unique<FakeOwner>();
    if (GetParam() == "sync") owner_ = std::make_unique<SyncOwner>();
    if (GetParam() == "loop") owner_ = std::make_unique<LoopOwner>();
  }

  template <typename Call>
  Status Await(Call call) {
    std::promise<Status> promise;
    owner_->Run([&] { call(owner_->disk(), [&](Status status) { promise.set_value(status); }); });
    return promise.get_future().get();
  }
  Status Write(FileId file, uint64_t offset, const std::vector<uint8_t>& data) {
    return Await([&](Disk& disk, auto done) { disk.Write(file, offset, data, std::move(done)); });
  }
  Status Read(FileId file, uint64_t offset, std::vector<uint8_t>& data) {
    return Await([&](Disk& disk, auto done) { disk.Read(file, offset, data, std::move(done)); });
  }

  std::unique_ptr<DiskOwner> owner_;
};

const FileId kBlocks{FileId::Kind::kBlock, 16, 0};
const FileId kLog{FileId::Kind::kLog, 0, 3};

TEST_P(ChunkDiskContract, ReadsWhatWasWritten) {
  const std::vector<uint8_t> data(100000, 7);
  ASSERT_TRUE(Write(kBlocks, 65536, data).ok());
  std::vector<uint8_t> read(100000);
  ASSERT_TRUE(Read(kBlocks, 65536, read).ok());
  EXPECT_EQ(read, data);
  EXPECT_EQ(Read(kBlocks, 100000, read).code(), Code::kCorrupt);
  EXPECT_EQ(Read(kLog, 0, read).code(), Code::kNotFound);
  EXPECT_TRUE(Await([](Disk& disk, auto done) { disk.Sync(kBlocks, std::move(done)); }).ok());
}

TEST_P(ChunkDiskContract, AllocatedAndPunchedRangesReadAsZeros) {
  ASSERT_TRUE(
      Await([](Disk& disk, auto done) { disk.Allocate(kLog, 0, 1 << 20, std::move(done)); }).ok());
  const std::vector<uint8_t> data(8192, 7);
  ASSERT_TRUE(Write(kLog, 4096, data).ok());
  ASSERT_TRUE(
      Await([](Disk& disk, auto done) { disk.Punch(kLog, 8192, 4096, std::move(done)); }).ok());
  std::vector<uint8_t> expected(1 << 20);
  std::fill(expected.begin() + 4096, expected.begin() + 8192, 7);
  std::vector<uint8_t> read(1 << 20);
  ASSERT_TRUE(Read(kLog, 0, read).ok());
  EXPECT_EQ(read, expected);
}

TEST_P(ChunkDiskContract, ListsAndRemovesFiles) {
  ASSERT_TRUE(Write(kLog, 0, std::vector<uint8_t>(4096)).ok());
  ASSERT_TRUE(Write(kBlocks, 0, std::vector<uint8_t>(8192)).ok());
  auto files = owner_->disk().List().value();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].file, kBlocks);
  EXPECT_EQ(files[0].size, 8192U);
  EXPECT_EQ(files[1].file, kLog);
  ASSERT_TRUE(Await([](Disk& disk, auto done) { disk.Remove(kLog, std::move(done)); }).ok());
  EXPECT_EQ(owner_->disk().List().value().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Disks, ChunkDiskContract, testing::Values("fake", "sync", "loop"),
                         [](const auto& info) { return info.param; });

// Runs callbacks on the test's thread.
class Inbox {
 public:
  void Post(Function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }
  void RunOne() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return !tasks_.empty(); });
    auto task = std::move(tasks_.front());
    tasks_.erase(tasks_.begin());
    lock.unlock();
    task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Function<void()>> tasks_;
};

class ChunkKvContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    if (GetParam() == "memory") {
      if (!kv_) kv_ = std::make_unique<MemoryMetaKv>(power_);
      return;
    }
    kv_.reset();
    auto opened = RocksMetaKv::Open(
        folder_.path(), [this](Function<void()> task) { inbox_.Post(std::move(task)); });
    ASSERT_TRUE(opened.ok());
    kv_ = std::move(opened.value());
  }

  void RunUntil(const bool& done) {
    while (!done) inbox_.RunOne();
  }

  Status Write(MetaKv::Batch batch) {
    bool done = false;
    Status out;
    kv_->Write(std::move(batch), [&](Status status) {
      out = std::move(status);
      done = true;
    });
    RunUntil(done);
    return out;
  }

  std::vector<MetaKv::Pair> Scan(const std::string& begin, const std::string& end, size_t limit) {
    bool done = false;
    std::vector<MetaKv::Pair> out;
    kv_->Scan(begin, end, limit, [&](Result<std::vector<MetaKv::Pair>> pairs) {
      out = std::move(pairs.value());
      done = true;
    });
    RunUntil(done);
    return out;
  }

  Folder folder_;
  FakePower power_;
  Inbox inbox_;
  std::unique_ptr<MetaKv> kv_;
};

TEST_P(ChunkKvContract, BatchesApplyInOrder) {
  ASSERT_TRUE(Write({{"b", "1"}, {"a", "2"}, {"b", "3"}, {"c", "4"}}).ok());
  ASSERT_TRUE(Write({{"a", std::nullopt}, {"d", ""}, {"zz", std::nullopt}}).ok());
  EXPECT_EQ(Scan("", "zzz", 10), (std::vector<MetaKv::Pair>{{"b", "3"}, {"c", "4"}, {"d", ""}}));
  EXPECT_EQ(Scan("b", "d", 10), (std::vector<MetaKv::Pair>{{"b", "3"}, {"c", "4"}}));
  EXPECT_EQ(Scan("b", "z", 1), (std::vector<MetaKv::Pair>{{"b", "3"}}));
  Reopen();
  EXPECT_EQ(Scan("", "zzz", 10).size(), 3U);
}

TEST_P(ChunkKvContract, OperationsTakeEffectInCallOrder) {
  int answered = 0;
  for (int i = 0; i < 1000; ++i) {
    kv_->Write({{"key", std::to_string(i)}}, [&answered](Status status) {
      EXPECT_TRUE(status.ok());
      ++answered;
    });
    if (i % 100 == 0) kv_->Sync([](Status status) { EXPECT_TRUE(status.ok()); });
    kv_->Get("key", [&answered, i](Result<std::optional<std::string>> value) {
      EXPECT_EQ(*value.value(), std::to_string(i));
      ++answered;
    });
  }
  bool done = false;
  kv_->Get("none", [&](Result<std::optional<std::string>> value) {
    EXPECT_FALSE(value.value());
    done = true;
  });
  RunUntil(done);
  EXPECT_EQ(answered, 2000);
}

INSTANTIATE_TEST_SUITE_P(Kvs, ChunkKvContract, testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return info.param; });

TEST(ChunkTargetFiles, TheDirectoryIsLocked) {
  const Folder folder;
  auto first = TargetFiles::Open(folder.path());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(TargetFiles::Open(folder.path()).status().code(), Code::kBusy);
  first.value().reset();
  EXPECT_TRUE(TargetFiles::Open(folder.path()).ok());
}

}  // namespace
}  // namespace fs3
