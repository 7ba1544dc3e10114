// TargetStore: a target's directory, opened: identity, lock, data files, metadata, chunk store.
//
//   <directory>/target   which target this is, in text
//   <directory>/meta     RocksDB
//   <directory>/blocks, <directory>/log   data files of the chunk store
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/chunk/chunk_store.h"
#include "fs3/native/chunk/disk.h"
#include "fs3/native/chunk/meta_kv.h"
#include "fs3/native/loop/loop.h"

namespace fs3 {

struct TargetIdentity {
  TargetId id = 0;
  uint64_t generation = 0;
  bool operator==(const TargetIdentity&) const = default;
};

struct TargetStoreOptions {
  std::string directory;
  TargetIdentity identity;
  bool create = false;
  uint64_t capacity_bytes = 0;  // 0: what the file system has for it
};

class TargetStore {
 public:
  // Opens everything; waits, so not on the loop's thread. Formats a directory that is no target yet
  // if `create`. kNotFound: it is none; kConflict: it is another target; kBusy: it is served by
  // another process.
  static Result<std::unique_ptr<TargetStore>> Open(Loop& loop, const TargetStoreOptions& options);
  // The chunk store must have been closed, or the loop have ended.
  ~TargetStore();

  ChunkStore& chunks() { return *chunks_; }

 private:
  TargetStore() = default;

  std::unique_ptr<Disk> disk_;
  std::unique_ptr<MetaKv> kv_;
  std::unique_ptr<ChunkStore> chunks_;
};

}  // namespace fs3
