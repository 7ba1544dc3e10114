// Fakes of the store's two boundaries, with the faults the real ones have.
//
// Power cuts: after a chosen number of operations everything fails. What was synced survives; each
// write since then is kept, lost or kept in part (by 512-byte sectors), one by one; the metadata
// keeps a prefix of the batches since its last sync. After kill -9 instead, all that completed
// stays.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fs3/native/chunk/disk.h"
#include "fs3/native/chunk/meta_kv.h"

namespace fs3 {

// Shared by the fakes of one machine.
class FakePower {
 public:
  explicit FakePower(uint64_t seed = 0) : random_(seed) {}
  // Counts an operation; false from the chosen one on.
  bool Tick() { return operations_++ < off_at_; }
  void CutAfter(uint64_t operations) { off_at_ = operations_ + operations; }
  void Restore() { off_at_ = UINT64_MAX; }
  bool is_on() const { return operations_ <= off_at_; }
  uint64_t operations() const { return operations_; }
  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  uint64_t operations_ = 0;
  uint64_t off_at_ = UINT64_MAX;
  std::mt19937_64 random_;
};

class FakeDisk final : public Disk {
 public:
  explicit FakeDisk(FakePower& power) : power_(power) {}

  void Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) override;
  void Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) override;
  void Sync(FileId file, Done done) override;
  void Allocate(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Punch(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Remove(FileId file, Done done) override;
  Result<std::vector<FileInfo>> List() override;

  // With deferral, operations take effect and complete one by one, in random order, by RunOne.
  void set_deferred(bool deferred) { deferred_ = deferred; }
  bool RunOne();

  void LosePower();  // leaves what may be found at the next start
  void FlipBit(FileId file, uint64_t bit);
  const std::vector<uint8_t>* Content(FileId file) const;
  uint64_t written_bytes() const { return written_bytes_; }

 private:
  struct UnsyncedWrite {
    uint64_t offset = 0;
    std::vector<uint8_t> data;
  };
  struct File {
    std::vector<uint8_t> now;
    std::vector<uint8_t> durable;
    std::vector<UnsyncedWrite> unsynced;
  };

  void Start(Function<Status()> effect, Done done);
  static void Put(std::vector<uint8_t>& bytes, uint64_t offset, std::span<const uint8_t> data);

  FakePower& power_;
  bool deferred_ = false;
  std::map<FileId, File> files_;
  std::vector<std::pair<Function<Status()>, Done>> waiting_;
  uint64_t written_bytes_ = 0;
};

class MemoryMetaKv final : public MetaKv {
 public:
  explicit MemoryMetaKv(FakePower& power) : power_(power) {}

  void Write(Batch batch, Done done) override;
  void Sync(Done done) override;
  void Get(std::string key, GetDone done) override;
  void Scan(std::string begin, std::string end, size_t limit, ScanDone done) override;

  // With deferral, operations complete one by one, in call order, by RunOne.
  void set_deferred(bool deferred) { deferred_ = deferred; }
  bool RunOne();
  void LosePower();
  size_t size() const { return now_.size(); }

 private:
  using Map = std::map<std::string, std::string>;
  static void Apply(Map& map, const Batch& batch);
  void Start(Function<void()> operation);

  FakePower& power_;
  bool deferred_ = false;
  Map now_;
  Map durable_;
  std::vector<Batch> unsynced_;
  std::vector<Function<void()>> waiting_;
};

}  // namespace fs3
