// RocksMetaKv: the records in RocksDB, whose calls can wait, on a thread of its own. Batches that
// arrive while one is written are written together.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "fs3/native/chunk/meta_kv.h"
#include "fs3/native/chunk/rocksdb.h"

namespace fs3 {

// Runs a task on the thread that uses the store. Called from any thread.
using Executor = std::function<void(Function<void()>)>;

class RocksMetaKv final : public MetaKv {
 public:
  // kBusy, kCorrupt and so on as RocksDb::Open.
  static Result<std::unique_ptr<RocksMetaKv>> Open(const std::string& path, Executor executor);
  // Waits for what was asked; the callbacks still go to the executor.
  ~RocksMetaKv() override;

  void Write(Batch batch, Done done) override;
  void Sync(Done done) override;
  void Get(std::string key, GetDone done) override;
  void Scan(std::string begin, std::string end, size_t limit, ScanDone done) override;

 private:
  struct WriteRequest {
    Batch batch;
    Done done;
  };
  struct OtherRequest {
    Function<Function<void()>(RocksDb&)> run;  // returns what to tell the caller
  };
  using Request = std::variant<WriteRequest, OtherRequest>;

  RocksMetaKv(std::unique_ptr<RocksDb> db, Executor executor);
  void Push(Request request);
  void Run();
  void Process(std::vector<Request> requests);
  size_t WriteTogether(std::vector<Request>& requests, size_t begin,
                       std::vector<Function<void()>>& answers);

  const std::unique_ptr<RocksDb> db_;
  const Executor executor_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Request> queue_;  // guarded by mutex_
  bool stopping_ = false;       // guarded by mutex_
  std::thread thread_;
};

}  // namespace fs3
