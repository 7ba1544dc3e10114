#include "fs3/native/chunk/rocks_meta_kv.h"

namespace fs3 {

Result<std::unique_ptr<RocksMetaKv>> RocksMetaKv::Open(const std::string& path, Executor executor) {
  RocksDbOptions options;
  options.write_buffer_bytes = 32ULL << 20;
  options.block_cache_bytes = 32ULL << 20;
  auto db = RocksDb::Open(path, options);
  if (!db.ok()) return db.status();
  return std::unique_ptr<RocksMetaKv>(new RocksMetaKv(std::move(db.value()), std::move(executor)));
}

RocksMetaKv::RocksMetaKv(std::unique_ptr<RocksDb> db, Executor executor)
    : db_(std::move(db)), executor_(std::move(executor)), thread_([this] { Run(); }) {}

RocksMetaKv::~RocksMetaKv() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void RocksMetaKv::Push(Request request) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = queue_.empty();
    queue_.push_back(std::move(request));
  }
  if (was_empty) wake_.notify_one();
}

void RocksMetaKv::Run() {
  while (true) {
    std::vector<Request> requests;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      requests.swap(queue_);
    }
    Process(std::move(requests));
  }
}

void RocksMetaKv::Process(std::vector<Request> requests) {
  std::vector<Function<void()>> answers;
  for (size_t i = 0; i < requests.size();) {
    if (std::holds_alternative<WriteRequest>(requests[i])) {
      i = WriteTogether(requests, i, answers);
    } else {
      answers.push_back(std::get<OtherRequest>(requests[i++]).run(*db_));
    }
  }
  executor_([answers = std::move(answers)]() mutable {
    for (auto& answer : answers) answer();
  });
}

// Writes the batches from `begin` on up to the next other request; returns its index.
size_t RocksMetaKv::WriteTogether(std::vector<Request>& requests, size_t begin,
                                  std::vector<Function<void()>>& answers) {
  RocksDbBatch together;
  size_t end = begin;
  for (; end < requests.size(); ++end) {
    const auto* write = std::get_if<WriteRequest>(&requests[end]);
    if (write == nullptr) break;
    for (const Mutation& mutation : write->batch) {
      if (mutation.value) {
        together.Put(mutation.key, *mutation.value);
      } else {
        together.Delete(mutation.key);
      }
    }
  }
  const Status status = db_->Write(together, /*sync=*/false);
  for (size_t i = begin; i < end; ++i) {
    answers.push_back([done = std::move(std::get<WriteRequest>(requests[i]).done),
                       status]() mutable { done(status); });
  }
  return end;
}

void RocksMetaKv::Write(Batch batch, Done done) {
  Push(WriteRequest{std::move(batch), std::move(done)});
}

void RocksMetaKv::Sync(Done done) {
  Push(OtherRequest{[done = std::move(done)](RocksDb& db) mutable -> Function<void()> {
    return [done = std::move(done), status = db.SyncWal()]() mutable { done(std::move(status)); };
  }});
}

void RocksMetaKv::Get(std::string key, GetDone done) {
  Push(OtherRequest{
      [key = std::move(key), done = std::move(done)](RocksDb& db) mutable -> Function<void()> {
        return [done = std::move(done), value = db.Get(key)]() mutable { done(std::move(value)); };
      }});
}

void RocksMetaKv::Scan(std::string begin, std::string end, size_t limit, ScanDone done) {
  Push(OtherRequest{[begin = std::move(begin), end = std::move(end), limit,
                     done = std::move(done)](RocksDb& db) mutable -> Function<void()> {
    return [done = std::move(done), pairs = db.Scan(begin, end, limit, false)]() mutable {
      done(std::move(pairs));
    };
  }});
}

}  // namespace fs3
