#include "fs3/native/chunk/rocksdb.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

namespace fs3 {
namespace {

rocksdb::Slice ToSlice(std::string_view view) { return {view.data(), view.size()}; }

// RocksDB reports a held lock as a plain IO error; its text is the only way to tell.
bool IsLockHeld(const std::string& message) {
  return message.find("While lock file") != std::string::npos ||
         message.find("lock hold by current process") != std::string::npos;
}

Code ToCode(const rocksdb::Status& status) {
  if (status.IsCorruption()) return Code::kCorrupt;
  if (status.IsNoSpace()) return Code::kNoSpace;
  if (status.IsNotFound()) return Code::kNotFound;
  if (status.IsInvalidArgument()) return Code::kInvalidArgument;
  if (status.IsShutdownInProgress()) return Code::kUnavailable;
  if (status.ToString().find("Permission denied") != std::string::npos) {
    return Code::kPermissionDenied;
  }
  return Code::kInternal;
}

Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return Status::Ok();
  return {ToCode(status), "rocksdb: " + status.ToString()};
}

rocksdb::Options MakeOptions(const RocksDbOptions& options) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::Options out;
  out.create_if_missing = options.create;
  out.write_buffer_size = options.write_buffer_bytes;
  out.max_total_wal_size = options.wal_bytes_max;
  out.max_background_jobs = options.background_jobs;
  out.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  out.compression = rocksdb::kLZ4Compression;
  out.bytes_per_sync = 1 << 20;  // spreads the cost of a later sync
  out.info_log_level = rocksdb::WARN_LEVEL;
  out.max_log_file_size = 16 << 20;
  out.keep_log_file_num = 2;
  return out;
}

}  // namespace

RocksDbBatch::RocksDbBatch() : batch_(std::make_unique<rocksdb::WriteBatch>()) {}
RocksDbBatch::~RocksDbBatch() = default;
RocksDbBatch::RocksDbBatch(RocksDbBatch&&) noexcept = default;
RocksDbBatch& RocksDbBatch::operator=(RocksDbBatch&&) noexcept = default;

// WriteBatch fails only above its size limit, which is off by default.
void RocksDbBatch::Put(std::string_view key, std::string_view value) {
  batch_->Put(ToSlice(key), ToSlice(value)).PermitUncheckedError();
}
void RocksDbBatch::Delete(std::string_view key) {
  batch_->Delete(ToSlice(key)).PermitUncheckedError();
}
void RocksDbBatch::DeleteRange(std::string_view begin, std::string_view end) {
  batch_->DeleteRange(ToSlice(begin), ToSlice(end)).PermitUncheckedError();
}
void RocksDbBatch::Clear() { batch_->Clear(); }

RocksDb::RocksDb(std::unique_ptr<rocksdb::DB> db) : db_(std::move(db)) {}
RocksDb::~RocksDb() = default;

Result<std::unique_ptr<RocksDb>> RocksDb::Open(const std::string& path,
                                               const RocksDbOptions& options) {
  // Asked here because RocksDB would leave a directory behind while finding out.
  if (!options.create && ::access((path + "/CURRENT").c_str(), F_OK) != 0) {
    return Status(Code::kNotFound, path + " holds no database");
  }
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(MakeOptions(options), path, &raw);
  std::unique_ptr<rocksdb::DB> db(raw);
  if (status.ok()) return std::unique_ptr<RocksDb>(new RocksDb(std::move(db)));
  if (IsLockHeld(status.ToString())) {
    return Status(Code::kBusy, path + " is in use by another process; stop it or choose another " +
                                   "directory (" + status.ToString() + ")");
  }
  return Status(ToCode(status), "cannot open " + path + ": " + status.ToString());
}

Result<std::optional<std::string>> RocksDb::Get(std::string_view key) const {
  std::string value;
  const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), ToSlice(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) return ToStatus(status);
  return std::optional<std::string>(std::move(value));
}

Result<std::vector<std::optional<std::string>>> RocksDb::MultiGet(
    const std::vector<std::string_view>& keys) const {
  std::vector<rocksdb::Slice> slices;
  slices.reserve(keys.size());
  for (const auto& key : keys) slices.push_back(ToSlice(key));
  std::vector<std::string> values;
  const auto statuses = db_->MultiGet(rocksdb::ReadOptions(), slices, &values);
  std::vector<std::optional<std::string>> out(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    if (!statuses[i].ok()) return ToStatus(statuses[i]);
    out[i] = std::move(values[i]);
  }
  return out;
}

Result<std::vector<RocksDb::Pair>> RocksDb::Scan(std::string_view begin,
                                                 std::optional<std::string_view> end, size_t limit,
                                                 bool reverse) const {
  // The bounds belong to the iterator, which then also skips tombstones beyond them.
  const rocksdb::Slice lower = ToSlice(begin);
  const rocksdb::Slice upper = end ? ToSlice(*end) : rocksdb::Slice();
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &lower;
  if (end) options.iterate_upper_bound = &upper;
  const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(options));
  std::vector<Pair> out;
  reverse ? iterator->SeekToLast() : iterator->SeekToFirst();
  while (iterator->Valid() && out.size() < limit) {
    out.emplace_back(iterator->key().ToString(), iterator->value().ToString());
    reverse ? iterator->Prev() : iterator->Next();
  }
  if (!iterator->status().ok()) return ToStatus(iterator->status());
  return out;
}

Status RocksDb::Write(RocksDbBatch& batch, bool sync) {
  rocksdb::WriteOptions options;
  options.sync = sync;
  return ToStatus(db_->Write(options, batch.batch_.get()));
}

Status RocksDb::SyncWal() { return ToStatus(db_->SyncWAL()); }

}  // namespace fs3
