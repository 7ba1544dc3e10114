// RocksDb: an ordered key-value store in one directory, the part of RocksDB that fs3 uses.
//
// Invariant: a batch is atomic and, once Write returns, is in the page cache of the write-ahead
// log, so it survives kill -9 of this process. It survives power loss after a Write with sync or a
// later SyncWal. All methods may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fs3/native/base/status.h"

namespace rocksdb {
class DB;
class WriteBatch;
}  // namespace rocksdb

namespace fs3 {

struct RocksDbOptions {
  bool create = true;
  uint64_t write_buffer_bytes = 64ULL << 20;
  uint64_t block_cache_bytes = 64ULL << 20;
  uint64_t wal_bytes_max = 256ULL << 20;
  int background_jobs = 2;
};

// Puts, deletes and range deletes that become visible together.
class RocksDbBatch {
 public:
  RocksDbBatch();
  ~RocksDbBatch();
  RocksDbBatch(RocksDbBatch&&) noexcept;
  RocksDbBatch& operator=(RocksDbBatch&&) noexcept;

  void Put(std::string_view key, std::string_view value);
  void Delete(std::string_view key);
  // Removes begin <= key < end, but not what this batch puts afterwards.
  void DeleteRange(std::string_view begin, std::string_view end);
  void Clear();

 private:
  friend class RocksDb;
  std::unique_ptr<rocksdb::WriteBatch> batch_;
};

class RocksDb {
 public:
  using Pair = std::pair<std::string, std::string>;

  // kBusy: another process or handle has the directory open. kNotFound: nothing there and
  // options.create is false. kCorrupt, kNoSpace, kPermissionDenied as their names say.
  static Result<std::unique_ptr<RocksDb>> Open(const std::string& path,
                                               const RocksDbOptions& options);
  ~RocksDb();

  Result<std::optional<std::string>> Get(std::string_view key) const;
  Result<std::vector<std::optional<std::string>>> MultiGet(
      const std::vector<std::string_view>& keys) const;

  // Pairs with begin <= key < end in key order, or from the last one down if reverse; at most
  // limit. Without end the range is open.
  Result<std::vector<Pair>> Scan(std::string_view begin, std::optional<std::string_view> end,
                                 size_t limit, bool reverse) const;

  Status Write(RocksDbBatch& batch, bool sync);
  Status SyncWal();

 private:
  explicit RocksDb(std::unique_ptr<rocksdb::DB> db);
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace fs3
